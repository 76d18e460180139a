// Dropout in inference mode, and what is refused.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

TEST(Dropout, HandsItsDataOn) {
  const TestTensor x = floats({2, 2}, {1, -2, 0, 4});
  expectTensor(KernelCall("Dropout").in(x).run(), {2, 2}, {1, -2, 0, 4});
  expectTensor(KernelCall("Dropout").in(x).in(floats({}, {0.5f})).run(), {2, 2}, {1, -2, 0, 4});
  const TestTensor half(ElementType::Float16, {3}, {1, 0.5, -2});
  expectTensor(KernelCall("Dropout").in(half).run(), {3}, {1, 0.5, -2});
  expectTensor(KernelCall("Dropout").in(floats({0}, {})).run(), {0}, {});
}

TEST(Dropout, TrainingIsRefused) {
  const TestTensor x = floats({2}, {1, 2});
  const TestTensor ratio = floats({}, {0.5f});
  const TestTensor yes(ElementType::Bool, {}, {1});
  const TestTensor no(ElementType::Bool, {}, {0});
  expectTensor(KernelCall("Dropout").in(x).in(ratio).in(no).run(), {2}, {1, 2});
  expectError(KernelCall("Dropout").in(x).in(ratio).in(yes).run(), "training mode");
}

} // namespace
} // namespace kvopt
