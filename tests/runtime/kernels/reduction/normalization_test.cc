// LayerNormalization and RMSNormalization against their formulas in double.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

std::vector<double> normalized(const TestTensor& x, int64_t length, bool centred, double epsilon,
                               const TestTensor& scale, const TestTensor* bias) {
  std::vector<double> y;
  for (int64_t first = 0; first < x.count(); first += length) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < length && centred; ++i)
      mean += x.get(first + i) / double(length);
    for (int64_t i = 0; i < length; ++i)
      squares += (x.get(first + i) - mean) * (x.get(first + i) - mean) / double(length);
    for (int64_t i = 0; i < length; ++i)
      y.push_back((x.get(first + i) - mean) / std::sqrt(squares + epsilon) *
                      scale.get(i % scale.count()) +
                  (bias ? bias->get(i % bias->count()) : 0));
  }
  return y;
}

TEST(LayerNormalization, AxesAndElementTypes) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (int axis : {-1, 1, 0}) {
      const TestTensor x = randomTensor(element, {2, 3, 8}, 1, 2);
      const int64_t length = axis == -1 ? 8 : axis == 1 ? 24 : 48;
      const Extents shape(x.shape().begin() + (axis == -1 ? 2 : axis), x.shape().end());
      const TestTensor scale = randomTensor(element, shape, 2);
      const TestTensor bias = randomTensor(element, shape, 3);
      const double tolerance = element == ElementType::Float     ? 1e-5
                               : element == ElementType::Float16 ? 0x1p-9
                                                                 : 0x1p-6;
      const KernelResult result = KernelCall("LayerNormalization")
                                      .in(x)
                                      .in(scale)
                                      .in(bias)
                                      .attr("axis", axis)
                                      .attr("epsilon", 1e-3)
                                      .threads(2)
                                      .run();
      expectTensor(result, x.shape(), normalized(x, length, true, 1e-3, scale, &bias), tolerance);
    }
}

TEST(LayerNormalization, StatisticsAndRepeatedScale) {
  const TestTensor x = floats({2, 4}, {1, 2, 3, 4, 2, 2, 2, 2});
  const TestTensor scale = floats({1}, {2});
  const KernelResult result =
      KernelCall("LayerNormalization").in(x).in(scale).results(3).attr("epsilon", 0.75).run();
  expectTensor(result, {2, 4}, normalized(x, 4, true, 0.75, scale, nullptr), 1e-6);
  expectTensor(result, {2, 1}, {2.5, 2}, 0, 1);
  expectTensor(result, {2, 1}, {1 / std::sqrt(2.0), 1 / std::sqrt(0.75)}, 1e-6, 2);
}

/// The mean is far larger than the deviation.
TEST(LayerNormalization, LargeMean) {
  const TestTensor x = floats({1, 4}, {100000, 100001, 100002, 100003});
  const TestTensor scale = floats({4}, {1, 1, 1, 1});
  expectTensor(KernelCall("LayerNormalization").in(x).in(scale).run(), {1, 4},
               normalized(x, 4, true, 1e-5, scale, nullptr), 1e-5);
}

TEST(RmsNormalization, Formula) {
  const TestTensor x = randomTensor(ElementType::Float, {3, 5, 6}, 1, 2);
  const TestTensor scale = randomTensor(ElementType::Float, {6}, 2);
  for (const char* op : {"RMSNormalization", "SimplifiedLayerNormalization"})
    expectTensor(KernelCall(op, 23).in(x).in(scale).attr("epsilon", 1e-6).run(), x.shape(),
                 normalized(x, 6, false, 1e-6, scale, nullptr), 1e-5);
}

TEST(Normalization, EmptyAndRefused) {
  const TestTensor scale = floats({2}, {1, 1});
  expectTensor(KernelCall("LayerNormalization").in(floats({0, 2}, {})).in(scale).run(), {0, 2}, {});
  const TestTensor none = floats({0}, {}), rows = floats({2, 0}, {});
  expectTensor(KernelCall("LayerNormalization").in(rows).in(none).run(), {2, 0}, {});
  expectError(KernelCall("LayerNormalization").in(rows).in(none).results(3).run(),
              "hold no elements");
  expectError(KernelCall("LayerNormalization").in(floats({1, 3}, {1, 2, 3})).in(scale).run(),
              "operand 1 does not broadcast");
  expectError(
      KernelCall("RMSNormalization", 23).in(floats({2}, {1, 2})).in(scale).attr("axis", 1).run(),
      "axis 1");
}

} // namespace
} // namespace kvopt
