// Gather and GatherElements.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

KernelResult gather(const char* op, TestTensor x, TestTensor indices, int axis) {
  return KernelCall(op).in(std::move(x)).in(std::move(indices)).attr("axis", axis).run();
}

TEST(Gather, AxesAndIndices) {
  const TestTensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expectTensor(gather("Gather", x, int64s({1}), 0), {1, 3}, {4, 5, 6});
  expectTensor(gather("Gather", x, int64s({}, {-1}), 1), {2}, {3, 6});
  expectTensor(gather("Gather", x, int64s({2, 2}, {0, 2, 1, 1}), -1), {2, 2, 2},
               {1, 3, 2, 2, 4, 6, 5, 5});
  expectTensor(gather("Gather", x, {ElementType::Int32, {2}, {1, 0}}, 0), {2, 3},
               {4, 5, 6, 1, 2, 3});
  expectTensor(gather("Gather", bools({3}, {1, 0, 1}), int64s({2, 1}), 0), {2}, {1, 0});
  expectTensor(gather("Gather", {ElementType::Float16, {2}, {0.5, 2}}, int64s({1}), 0), {1}, {2});
}

TEST(Gather, Empty) {
  expectTensor(gather("Gather", floats({2, 0}, {}), int64s({1}), 0), {1, 0}, {});
  expectTensor(gather("Gather", floats({2}, {1, 2}), int64s({0}, {}), 0), {0}, {});
  expectError(gather("Gather", floats({0, 2}, {}), int64s({0}), 0), "index 0 is out of range");
}

TEST(Gather, Refuses) {
  const TestTensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expectError(gather("Gather", x, int64s({2}), 0), "index 2 is out of range for extent 2");
  expectError(gather("Gather", x, int64s({-4}), 1), "index -4 is out of range for extent 3");
  expectError(gather("Gather", x, int64s({0}), 2), "axis 2");
  expectError(gather("Gather", x, floats({1}, {0}), 0), "element type float");
}

TEST(GatherElements, AxesAndIndices) {
  const TestTensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expectTensor(gather("GatherElements", x, int64s({2, 2}, {0, 0, 2, -3}), 1), {2, 2}, {1, 1, 6, 4});
  expectTensor(gather("GatherElements", x, int64s({1, 3}, {1, 0, -1}), 0), {1, 3}, {4, 2, 6});
  expectTensor(gather("GatherElements", x, int64s({3, 1}, {1, 0, 1}), -2), {3, 1}, {4, 1, 4});
  expectTensor(gather("GatherElements", x, int64s({0, 3}, {}), 0), {0, 3}, {});
}

TEST(GatherElements, Refuses) {
  const TestTensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expectError(gather("GatherElements", x, int64s({1, 1}, {3}), 1), "index 3 is out of range");
  expectError(gather("GatherElements", x, int64s({3, 1}, {0, 0, 0}), 1), "more than 2");
  expectError(gather("GatherElements", x, int64s({0}), 0), "rank");
}

} // namespace
} // namespace kvopt
