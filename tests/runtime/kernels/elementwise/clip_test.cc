// Clip with bounds as operands and, before opset 11, as attributes.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
namespace {

TEST(Clip, Bounds) {
  const TestTensor x = floats({4}, {-5, 0, 5, NAN});
  const TestTensor low = floats({}, {-1}), high = floats({}, {2});
  expectTensor(KernelCall("Clip").in(x).in(low).in(high).run(), {4}, {-1, 0, 2, NAN});
  expectTensor(KernelCall("Clip").in(x).absent().in(high).run(), {4}, {-5, 0, 2, NAN});
  expectTensor(KernelCall("Clip").in(x).run(), {4}, {-5, 0, 5, NAN});
  expectTensor(KernelCall("Clip").in(x).in(high).in(low).run(), {4}, {-1, -1, -1, NAN});
  expectTensor(KernelCall("Clip", 10).in(x).attr("min", -1.0).run(), {4}, {-1, 0, 5, NAN});
  expectTensor(KernelCall("Clip").in(int64s({-3, 3})).in(int64s({}, {0})).run(), {2}, {0, 3});
  expectError(KernelCall("Clip").in(x).in(floats({2}, {0, 1})).run(), "must be one element");
  expectError(KernelCall("Clip").in(x).in(int64s({}, {0})).run(), "must be one element");
}

} // namespace
} // namespace kvopt
