// Softmax along one axis, and over flattened axes before opset 13.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

/// Softmax over the middle of [outer, length, inner], in double.
std::vector<double> softmax(const TestTensor& x, int64_t length, int64_t inner) {
  std::vector<double> y(static_cast<size_t>(x.count()));
  for (int64_t at = 0; at < x.count(); ++at) {
    const int64_t first = at / (length * inner) * length * inner + at % inner;
    double sum = 0;
    for (int64_t i = 0; i < length; ++i)
      sum += std::exp(x.get(first + i * inner) - x.get(at));
    y[static_cast<size_t>(at)] = 1 / sum;
  }
  return y;
}

TEST(Softmax, EveryAxis) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16}) {
    const TestTensor x = randomTensor(element, {3, 20, 5}, 1, 8);
    const double tolerance = element == ElementType::Float     ? 1e-6
                             : element == ElementType::Float16 ? 0x1p-11
                                                               : 0x1p-8;
    const int64_t lengths[] = {3, 20, 5}, inner[] = {100, 5, 1};
    for (int axis = -3; axis < 3; ++axis)
      expectTensor(KernelCall("Softmax").in(x).attr("axis", axis).threads(2).run(), x.shape(),
                   softmax(x, lengths[(axis + 3) % 3], inner[(axis + 3) % 3]), tolerance);
    expectTensor(KernelCall("Softmax").in(x).run(), x.shape(), softmax(x, 5, 1), tolerance);
  }
}

TEST(Softmax, Logarithm) {
  const TestTensor x = randomTensor(ElementType::Float, {3, 20, 5}, 1, 8);
  const int64_t lengths[] = {3, 20, 5}, inner[] = {100, 5, 1};
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<double> expected = softmax(x, lengths[axis], inner[axis]);
    for (double& value : expected)
      value = std::log(value);
    expectTensor(KernelCall("LogSoftmax").in(x).attr("axis", axis).run(), x.shape(), expected,
                 1e-5);
  }
  expectTensor(KernelCall("LogSoftmax", 11).in(floats({2, 1, 2}, {0, 0, 1e30, 1e30})).run(),
               {2, 1, 2}, {-std::log(2), -std::log(2), -std::log(2), -std::log(2)}, 1e-6);
  expectTensor(KernelCall("LogSoftmax").in(floats({2, 0}, {})).run(), {2, 0}, {});
}

TEST(Softmax, FlattensBeforeOpset13) {
  const TestTensor x = randomTensor(ElementType::Float, {2, 3, 4}, 1, 3);
  expectTensor(KernelCall("Softmax", 11).in(x).run(), x.shape(), softmax(x, 12, 1), 1e-6);
  expectTensor(KernelCall("Softmax", 11).in(x).attr("axis", -1).run(), x.shape(), softmax(x, 4, 1),
               1e-6);
  expectTensor(KernelCall("Softmax", 11).in(x).attr("axis", 0).run(), x.shape(), softmax(x, 24, 1),
               1e-6);
}

TEST(Softmax, Extremes) {
  expectTensor(KernelCall("Softmax").in(floats({3}, {1e30, 1e30, -1e30})).run(), {3}, {0.5, 0.5, 0},
               1e-7);
  expectTensor(KernelCall("Softmax").in(floats({2}, {-kInfinity, 0})).run(), {2}, {0, 1});
  expectTensor(KernelCall("Softmax").in(floats({2}, {-3.4e38, -3.4e38})).run(), {2}, {0.5, 0.5},
               1e-7);
}

TEST(Softmax, Empty) {
  expectTensor(KernelCall("Softmax").in(floats({2, 0}, {})).run(), {2, 0}, {});
  const int64_t huge = int64_t{1} << 40;
  expectTensor(KernelCall("Softmax").in(floats({huge, 0, huge >> 20}, {})).attr("axis", 1).run(),
               {huge, 0, huge >> 20}, {});
}

TEST(Softmax, Refuses) {
  expectError(KernelCall("Softmax").in(floats({2}, {1, 2})).attr("axis", 1).run(), "axis 1");
  expectError(KernelCall("Softmax").in(int64s({1, 2})).run(), "int64");
}

} // namespace
} // namespace kvopt
