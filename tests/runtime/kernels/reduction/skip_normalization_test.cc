// Normalizations of residual sums and of embeddings against their formulas.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// Rows of `width` elements, layer or root mean square norm.
std::vector<double> normalized(const std::vector<double>& x, int64_t width, bool centred,
                               const TestTensor& gamma, const TestTensor* beta, double epsilon) {
  std::vector<double> y;
  for (size_t row = 0; row < x.size(); row += size_t(width)) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i)
      mean += x[row + size_t(i)] / double(width);
    if (!centred)
      mean = 0;
    for (int64_t i = 0; i < width; ++i)
      squares += (x[row + size_t(i)] - mean) * (x[row + size_t(i)] - mean) / double(width);
    for (int64_t i = 0; i < width; ++i)
      y.push_back((x[row + size_t(i)] - mean) / std::sqrt(squares + epsilon) * gamma.get(i) +
                  (beta ? beta->get(i) : 0));
  }
  return y;
}

TEST(SkipNormalization, Formula) {
  const int64_t width = 7;
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (bool centred : {false, true})
      for (const Extents& skipShape :
           {Extents{2, 3, width}, Extents{1, 3, width}, Extents{3, width}})
        for (bool biased : {false, true}) {
          SCOPED_TRACE(formatted("element {} centred {} rank {} biased {}", int(element), centred,
                                 skipShape.size(), biased));
          const TestTensor x = randomTensor(element, {2, 3, width}, 1);
          const TestTensor skip = randomTensor(element, skipShape, 2);
          const TestTensor gamma = randomTensor(element, {width}, 3);
          const TestTensor beta = randomTensor(element, {width}, 4);
          const TestTensor bias = randomTensor(element, {width}, 5);
          TestTensor sum(element, x.shape());
          for (int64_t i = 0; i < x.count(); ++i)
            sum.set(i, x.get(i) + skip.get(i % skip.count()) + (biased ? bias.get(i % width) : 0));
          KernelCall call(centred ? "com.microsoft::SkipLayerNormalization"
                                  : "com.microsoft::SkipSimplifiedLayerNormalization");
          call.in(x).in(skip).in(gamma);
          if (centred)
            call.in(beta);
          if (biased)
            call.in(bias);
          call.attr("epsilon", 1e-3).results(4).unread(1).unread(2).threads(2);
          const KernelResult result = call.run();
          const double tolerance = element == ElementType::Float     ? 1e-5
                                   : element == ElementType::Float16 ? 4e-3
                                                                     : 3e-2;
          expectTensor(result, x.shape(), sum.values(), tolerance, 3);
          // The sum is rounded before it is normalized.
          expectTensor(result, x.shape(),
                       normalized(result.outputs[3].values(), width, centred, gamma,
                                  centred ? &beta : nullptr, 1e-3),
                       tolerance);
          expectTensor(call.unread(3).run(), x.shape(), result.outputs[0].values());
        }
}

/// ONNX Runtime's schemas have another default than its documentation of LayerNormalization.
TEST(SkipNormalization, DefaultEpsilon) {
  const TestTensor x = floats({1, 1, 2}, {1e-5, -1e-5}), zero = floats({1, 1, 2}, {0, 0});
  const TestTensor one = floats({2}, {1, 1});
  for (const char* op : {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}) {
    const std::string name = std::string("com.microsoft::") + op;
    KernelCall call(name.c_str());
    const double expected = 1 / std::sqrt(1 + 1e-2);
    expectTensor(call.in(x).in(zero).in(one).run(), {1, 1, 2}, {expected, -expected}, 1e-5);
  }
}

TEST(SkipNormalization, Refuses) {
  auto call = [](Extents input, Extents skip) {
    KernelCall result("com.microsoft::SkipLayerNormalization");
    result.in(TestTensor(ElementType::Float, std::move(input)));
    result.in(TestTensor(ElementType::Float, std::move(skip)));
    result.in(floats({2}, {1, 1}));
    return result;
  };
  expectError(call({2, 3, 2}, {2, 1, 2}).run(), "skip must be");
  expectError(call({2, 3, 2}, {2}).run(), "skip must be");
  expectError(call({2}, {2}).run(), "the input must be");
  expectError(call({1, 3, 3}, {1, 3, 3}).run(), "operand 2 must have 3 elements");
  expectTensor(call({0, 3, 2}, {3, 2}).run(), {0, 3, 2}, {});
  expectError(call({2, 3, 2}, {3, 2}).results(2).run(), "mean and inv_std_var");
}

KernelCall embed(const TestTensor& words) {
  KernelCall call("com.microsoft::EmbedLayerNormalization");
  call.in(TestTensor(ElementType::Int32, {2, 2}, {0, 3, 2, 1}));
  call.in(TestTensor(ElementType::Int32, {2, 2}, {0, 1, 1, 0})).in(words);
  call.in(randomTensor(ElementType::Float, {5, 3}, 2))
      .in(randomTensor(ElementType::Float, {2, 3}, 3));
  call.in(randomTensor(ElementType::Float, {3}, 4)).in(randomTensor(ElementType::Float, {3}, 5));
  call.in(TestTensor(ElementType::Int32, {2, 2}, {1, 1, 0, 1}));
  return call;
}

TEST(EmbedLayerNormalization, Formula) {
  const TestTensor words = randomTensor(ElementType::Float, {4, 3}, 1);
  const TestTensor positions = randomTensor(ElementType::Float, {5, 3}, 2);
  const TestTensor segments = randomTensor(ElementType::Float, {2, 3}, 3);
  const TestTensor gamma = randomTensor(ElementType::Float, {3}, 4);
  const TestTensor beta = randomTensor(ElementType::Float, {3}, 5);
  const int64_t ids[] = {0, 3, 2, 1}, kinds[] = {0, 1, 1, 0};
  for (const std::vector<double>& asked : {std::vector<double>{}, {4, 2}, {4, 2, 0, 1}}) {
    std::vector<double> sum;
    for (size_t token = 0; token < 4; ++token)
      for (int64_t d = 0; d < 3; ++d) {
        const int64_t position =
            asked.empty() ? int64_t(token % 2) : int64_t(asked[token % asked.size()]);
        sum.push_back(words.get(ids[token] * 3 + d) + positions.get(position * 3 + d) +
                      segments.get(kinds[token] * 3 + d));
      }
    KernelCall call = embed(words);
    if (!asked.empty())
      call.in(TestTensor(ElementType::Int64, {int64_t(asked.size()) / 2, 2}, asked));
    const KernelResult result = call.attr("epsilon", 1e-4).results(3).run();
    expectTensor(result, {2, 2, 3}, sum, 1e-6, 2);
    expectTensor(result, {2, 2, 3}, normalized(sum, 3, true, gamma, &beta, 1e-4), 1e-5);
    expectTensor(result, {2}, {2, 1}, 0, 1);
  }
}

TEST(EmbedLayerNormalization, Refuses) {
  expectError(embed(randomTensor(ElementType::Float, {3, 3}, 1)).run(), "row 3 of a table of 3");
  expectError(embed(randomTensor(ElementType::Float, {4, 2}, 1)).run(), "rows of 2 elements");
}

} // namespace
} // namespace kvopt
