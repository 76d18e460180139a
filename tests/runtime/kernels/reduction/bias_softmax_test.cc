// com.microsoft::BiasSoftmax against a double loop.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

TEST(BiasSoftmax, Formula) {
  for (ElementType element : {ElementType::Float, ElementType::Float16})
    for (int64_t axis : {2, 3, -1}) {
      SCOPED_TRACE(formatted("{} {}", onnxName(element).str(), axis));
      const TestTensor x = randomTensor(element, {2, 3, 4, 5}, 1, 3);
      const TestTensor bias = randomTensor(element, {2, 1, 1, 5}, 2);
      const int64_t length = axis == 2 ? 20 : 5;
      std::vector<double> expected;
      for (int64_t row = 0; row < x.count() / length; ++row) {
        std::vector<double> weights;
        double sum = 0;
        for (int64_t i = row * length; i < (row + 1) * length; ++i) {
          weights.push_back(std::exp(x.get(i) + bias.get(i / 60 * 5 + i % 5)));
          sum += weights.back();
        }
        for (double weight : weights)
          expected.push_back(weight / sum);
      }
      expectTensor(KernelCall("com.microsoft::BiasSoftmax")
                       .in(x)
                       .in(bias)
                       .attr("axis", static_cast<int>(axis))
                       .attr("is_inner_broadcast", 1)
                       .threads(2)
                       .run(),
                   x.shape(), expected, element == ElementType::Float ? 1e-6 : 2e-3);
    }
}

TEST(BiasSoftmax, Refuses) {
  const TestTensor x = floats({1, 2, 3}, {1, 2, 3, 4, 5, 6});
  auto run = [&](const TestTensor& bias, int64_t axis) {
    return KernelCall("com.microsoft::BiasSoftmax")
        .in(x)
        .in(bias)
        .attr("axis", static_cast<int>(axis))
        .attr("is_inner_broadcast", 1)
        .run();
  };
  expectError(run(floats({2}, {1, 2}), 2), "broadcast to the scores");
  expectError(run(floats({3}, {1, 2, 3}), 4), "axis out of range");
}

} // namespace
} // namespace kvopt
