// CumSum and CumProd in their four directions, and their refusals.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

KernelResult cumSum(TestTensor x, int axis, int exclusive = 0, int reverse = 0) {
  return KernelCall("CumSum")
      .in(std::move(x))
      .in(int64s({}, {double(axis)}))
      .attr("exclusive", exclusive)
      .attr("reverse", reverse)
      .run();
}

TEST(CumSum, Directions) {
  const TestTensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expectTensor(cumSum(x, 1), {2, 3}, {1, 3, 6, 4, 9, 15});
  expectTensor(cumSum(x, -1, 1), {2, 3}, {0, 1, 3, 0, 4, 9});
  expectTensor(cumSum(x, 1, 0, 1), {2, 3}, {6, 5, 3, 15, 11, 6});
  expectTensor(cumSum(x, 1, 1, 1), {2, 3}, {5, 3, 0, 11, 6, 0});
  expectTensor(cumSum(x, 0), {2, 3}, {1, 2, 3, 5, 7, 9});
  expectTensor(cumSum(floats({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), 1), {2, 2, 2},
               {1, 2, 4, 6, 5, 6, 12, 14});
}

TEST(CumSum, ElementTypes) {
  expectTensor(cumSum(int64s({1, 1, 0, 1}), 0), {4}, {1, 2, 2, 3});
  expectTensor(cumSum({ElementType::Int32, {3}, {-1, -1, 5}}, 0), {3}, {-1, -2, 3});
  // 2048 + 1 is no f16: the sum goes on in f32 all the same.
  expectTensor(cumSum({ElementType::Float16, {3}, {2048, 1, 1}}, 0), {3}, {2048, 2048, 2050});
  expectTensor(cumSum({ElementType::BFloat16, {3}, {256, 1, 1}}, 0), {3}, {256, 256, 258});
  expectTensor(cumSum(floats({2, 0}, {}), 0), {2, 0}, {});
  expectTensor(cumSum(floats({2, 0}, {}), 1), {2, 0}, {});
}

TEST(CumProd, DirectionsAndElementTypes) {
  auto cumProd = [](TestTensor x, int axis, int exclusive = 0, int reverse = 0) {
    return KernelCall("CumProd", 26)
        .in(std::move(x))
        .in(int64s({}, {double(axis)}))
        .attr("exclusive", exclusive)
        .attr("reverse", reverse)
        .run();
  };
  const TestTensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expectTensor(cumProd(x, 1), {2, 3}, {1, 2, 6, 4, 20, 120});
  expectTensor(cumProd(x, 1, 1), {2, 3}, {1, 1, 2, 1, 4, 20});
  expectTensor(cumProd(x, -1, 0, 1), {2, 3}, {6, 6, 3, 120, 30, 6});
  expectTensor(cumProd(x, 1, 1, 1), {2, 3}, {6, 3, 1, 30, 6, 1});
  expectTensor(cumProd(x, 0), {2, 3}, {1, 2, 3, 4, 10, 18});
  expectTensor(cumProd({ElementType::Int32, {3}, {-2, -3, 5}}, 0), {3}, {-2, 6, 30});
  expectTensor(cumProd({ElementType::Float16, {2}, {3, 0.5}}, 0), {2}, {3, 1.5});
}

TEST(CumSum, Refuses) {
  expectError(cumSum(floats({2}, {1, 2}), 1), "axis 1 is out of range");
  expectError(cumSum(floats({}, {1}), 0), "axis 0 is out of range");
  expectError(cumSum(bools({2}, {1, 0}), 0), "element type bool");
  expectError(KernelCall("CumSum").in(floats({2}, {1, 2})).in(int64s({0, 0})).run(),
              "must hold one integer");
}

} // namespace
} // namespace kvopt
