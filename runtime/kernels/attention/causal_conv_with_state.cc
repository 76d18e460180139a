// CausalConvWithState (opset 27, and com.microsoft): a depthwise convolution along the sequence,
// whose state is the positions before the input. Let X be past_state, or k - 1 zeros, followed by
// the input:
//
//   Y[b,c,t] = f(bias[c] + sum_i weight[c,0,i] * X[b,c,t+i])      0 <= i < k
//   present_state = the last k - 1 positions of X
//
// Input and output are [B,C,L], states [B,C,k-1]. activation: f(y) = y (none) or y / (1 + e^-y)
// (silu, swish). Computed in f32; f16 and bf16 sums are rounded before the activation. Other
// layouts, dilations and a state_window of com.microsoft's operator are not supported.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/float_operand.h"

#include <algorithm>
#include <cmath>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error checkShapes(const KernelContext& context) {
  const TensorView& input = context.in(0);
  const TensorView& weight = context.in(1);
  if (input.rank() != 3 || weight.rank() != 3)
    return context.error("input and weight must have rank 3");
  for (unsigned operand : {1u, 2u, 3u})
    if (context.has(operand) && context.in(operand).element != input.element)
      return context.error(formatted("operand {} is of another element type", operand));
  if (weight.shape[0] != input.shape[1] || weight.shape[1] != 1 || weight.shape[2] < 1)
    return context.error(formatted("a weight of [{}, {}, {}] for {} channels", weight.shape[0],
                                   weight.shape[1], weight.shape[2], input.shape[1]));
  if (const TensorView* bias = context.input(2); bias && bias->shape != Extents{input.shape[1]})
    return context.error("the bias is not one number per channel");
  const Extents state{input.shape[0], input.shape[1], weight.shape[2] - 1};
  if (const TensorView* past = context.input(3); past && past->shape != state)
    return context.error("the past state is not [B, C, k - 1]");
  return llvm::Error::success();
}

/// The value rounded to the element type.
float rounded(float value, ElementType element) {
  if (element == ElementType::Float16)
    return load(store<Float16>(value));
  return element == ElementType::BFloat16 ? load(store<BFloat16>(value)) : value;
}

llvm::Error causalConvWithState(KernelContext& context) {
  const std::pair<const char*, int64_t> usual[] = {
      {"ndim", 1}, {"dilation", 1}, {"channels_last", 0}, {"state_window", 0}};
  for (const auto& [name, value] : usual)
    if (const int64_t given = context.node().intAttr(name, value); given != value)
      return context.error(formatted("{} = {} is not supported", name, given));
  const llvm::StringRef activation = context.node().stringAttr("activation", "none");
  const bool silu = activation == "silu" || activation == "swish";
  if (!silu && activation != "none")
    return context.error(formatted("activation '{}' is unknown", activation.str()));
  if (llvm::Error error = checkShapes(context))
    return error;
  const TensorView& input = context.in(0);
  const int64_t channels = input.shape[1];
  const int64_t length = input.shape[2];
  const int64_t kernel = context.in(1).shape[2];
  const int64_t kept = kernel - 1;
  const float* operands[4] = {};
  for (unsigned operand = 0; operand < 4; ++operand)
    if (context.has(operand)) {
      auto floats = floatsOf(context, context.in(operand));
      if (!floats)
        return floats.takeError();
      operands[operand] = *floats;
    }
  const float* x = operands[0];
  const float* weight = operands[1];
  const float* bias = operands[2];
  const float* past = operands[3];
  auto output = context.output(0, input.element, input.shape);
  if (!output)
    return output.takeError();
  std::optional<TensorView> present;
  float* state = nullptr;
  if (context.wants(1)) {
    auto given = context.output(1, input.element, {input.shape[0], channels, kept});
    if (!given)
      return given.takeError();
    present = *given;
    auto floats = floatResult(context, *present);
    if (!floats)
      return floats.takeError();
    state = *floats;
  }
  auto y = floatResult(context, *output);
  if (!y)
    return y.takeError();
  const int64_t rows = input.elementCount() == 0 && (!present || present->elementCount() == 0)
                           ? 0
                           : input.shape[0] * channels;
  context.parallelFor(rows, [&](int64_t row) {
    // X[i] of this row.
    auto at = [&](int64_t i) {
      return i >= kept ? x[row * length + i - kept] : past ? past[row * kept + i] : 0.0f;
    };
    const int64_t channel = row % channels;
    for (int64_t t = 0; t < length; ++t) {
      float sum = bias ? bias[channel] : 0.0f;
      for (int64_t i = 0; i < kernel; ++i)
        sum += weight[channel * kernel + i] * at(t + i);
      if (silu) {
        sum = rounded(sum, input.element);
        sum /= 1.0f + std::exp(-sum);
      }
      (*y)[row * length + t] = sum;
    }
    for (int64_t i = 0; state && i < kept; ++i)
      state[row * kept + i] = at(length + i);
  });
  storeFloats(*y, *output);
  if (present)
    storeFloats(state, *present);
  return llvm::Error::success();
}

} // namespace

void register_causal_conv_with_state(KernelRegistry& registry) {
  registry.add("CausalConvWithState", 27, causalConvWithState);
  registry.add("com.microsoft::CausalConvWithState", 1, causalConvWithState);
}

} // namespace kvopt::kernels
