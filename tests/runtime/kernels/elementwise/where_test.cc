// Where under broadcasting.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
namespace {

KernelResult where(TestTensor condition, TestTensor a, TestTensor b) {
  return KernelCall("Where").in(std::move(condition)).in(std::move(a)).in(std::move(b)).run();
}

TEST(Where, Broadcasts) {
  expectTensor(where(bools({2, 1}, {1, 0}), floats({2}, {1, 2}), floats({}, {9})), {2, 2},
               {1, 2, 9, 9});
  expectTensor(where(bools({2}, {2, 0}), int64s({1}), int64s({5, 6})), {2}, {1, 6});
  expectTensor(where(bools({0}, {}), floats({1}, {1}), floats({1}, {2})), {0}, {});
  expectTensor(where(bools({1}, {0}), floats({1}, {1}), floats({1}, {NAN})), {1}, {NAN});
  expectError(where(floats({1}, {1}), floats({1}, {1}), floats({1}, {2})), "must be boolean");
  expectError(where(bools({1}, {1}), floats({1}, {1}), int64s({1})), "different element types");
  expectError(where(bools({3}, {1, 1, 1}), floats({2}, {1, 1}), floats({1}, {2})), "broadcast");
}

} // namespace
} // namespace kvopt
