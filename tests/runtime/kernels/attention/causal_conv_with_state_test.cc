// CausalConvWithState against a double loop: kernels, states shorter and longer than the input,
// activations, element types, refusals.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

struct ConvCase {
  int64_t batches = 2, channels = 3, length = 5, kernel = 4;
  bool hasBias = true, hasPast = true;
  std::string activation = "none";
  ElementType element = ElementType::Float;
};

struct ConvProblem {
  explicit ConvProblem(const ConvCase& given) : c(given) {
    input = randomTensor(c.element, {c.batches, c.channels, c.length}, 1);
    weight = randomTensor(c.element, {c.channels, 1, c.kernel}, 2);
    bias = randomTensor(c.element, {c.channels}, 3);
    past = randomTensor(c.element, {c.batches, c.channels, c.kernel - 1}, 4);
  }

  KernelCall call(const char* op = "CausalConvWithState") const {
    KernelCall result(op, 27);
    result.in(input).in(weight);
    c.hasBias ? result.in(bias) : result.absent();
    c.hasPast ? result.in(past) : result.absent();
    return std::move(result.attr("activation", c.activation.c_str()).results(2));
  }

  double at(int64_t row, int64_t position) const {
    const int64_t kept = c.kernel - 1;
    return position >= kept ? input.get(row * c.length + position - kept)
           : c.hasPast      ? past.get(row * kept + position)
                            : 0;
  }

  void expect(const KernelResult& result) const {
    std::vector<double> output;
    std::vector<double> state;
    for (int64_t row = 0; row < c.batches * c.channels; ++row) {
      for (int64_t t = 0; t < c.length; ++t) {
        double sum = c.hasBias ? bias.get(row % c.channels) : 0;
        for (int64_t i = 0; i < c.kernel; ++i)
          sum += weight.get(row % c.channels * c.kernel + i) * at(row, t + i);
        output.push_back(c.activation == "none" ? sum : sum / (1 + std::exp(-sum)));
      }
      for (int64_t i = 0; i < c.kernel - 1; ++i)
        state.push_back(at(row, c.length + i));
    }
    const double tolerance = c.element == ElementType::Float     ? 1e-6
                             : c.element == ElementType::Float16 ? 2e-3
                                                                 : 2e-2;
    expectTensor(result, {c.batches, c.channels, c.length}, output, tolerance);
    expectTensor(result, {c.batches, c.channels, c.kernel - 1}, state, 0, 1);
  }

  const ConvCase c;
  TestTensor input, weight, bias, past;
};

TEST(CausalConvWithState, KernelsLengthsAndStates) {
  for (int64_t kernel : {1, 2, 4})
    for (int64_t length : {0, 1, 2, 5})
      for (bool hasPast : {false, true})
        for (bool hasBias : {false, true}) {
          SCOPED_TRACE(formatted("kernel {} length {} past {}", kernel, length, hasPast));
          ConvCase c;
          c.kernel = kernel;
          c.length = length;
          c.hasPast = hasPast;
          c.hasBias = hasBias;
          const ConvProblem problem(c);
          problem.expect(problem.call().threads(2).run());
        }
}

TEST(CausalConvWithState, ActivationsAndElementTypes) {
  for (const char* activation : {"none", "silu", "swish"})
    for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16}) {
      ConvCase c;
      c.activation = activation;
      c.element = element;
      const ConvProblem problem(c);
      problem.expect(problem.call().run());
    }
}

TEST(CausalConvWithState, OfOnnxRuntime) {
  const ConvProblem problem{ConvCase()};
  const char* op = "com.microsoft::CausalConvWithState";
  problem.expect(problem.call(op).attr("ndim", 1).attr("dilation", 1).run());
  for (const char* attribute : {"ndim", "dilation", "channels_last", "state_window"})
    expectError(problem.call(op).attr(attribute, 2).run(), attribute);
}

TEST(CausalConvWithState, Refuses) {
  const ConvProblem problem{ConvCase()};
  auto refused = [&](unsigned operand, const TestTensor& tensor, const char* text) {
    expectError(problem.call().overwrite(operand, tensor).run(), text);
  };
  expectError(problem.call().attr("activation", "relu").run(), "'relu' is unknown");
  refused(0, floats({2, 15}, std::vector<double>(30, 0)), "rank 3");
  refused(1, floats({2, 1, 4}, std::vector<double>(8, 0)), "for 3 channels");
  refused(1, floats({3, 1, 0}, {}), "for 3 channels");
  refused(2, floats({2}, {0, 0}), "bias");
  refused(3, floats({2, 3, 4}, std::vector<double>(24, 0)), "past state");
  refused(3, TestTensor(ElementType::Float16, {2, 3, 3}), "another element type");
}

} // namespace
} // namespace kvopt
