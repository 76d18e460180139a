// Operators whose state has fixed extents: LinearAttention and CausalConvWithState, from ONNX and,
// with more attributes, from com.microsoft.
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

// Width of one of `heads` concatenated heads.
llvm::Expected<Dim> widthOf(const ShapeContext& context, unsigned operand, int64_t heads) {
  const Dim packed = context.type(operand).dim(2);
  if (std::optional<int64_t> extent = packed.value(); extent && *extent % heads != 0)
    return context.error(formatted("the last extent {} of operand {} does not divide into {} "
                                   "heads",
                                   *extent, operand, heads));
  return packed.dividedBy(Dim::fixed(heads)).value_or(Dim::unknown());
}

llvm::Error inferLinearAttention(ShapeContext& context) {
  const Node& node = context.node();
  const int64_t heads = node.intAttr("q_num_heads", 0);
  const int64_t groups = node.intAttr("kv_num_heads", 0);
  if (heads < 1 || groups < 1 || heads % groups != 0)
    return context.error(formatted(
        "q_num_heads = {} is not a positive multiple of kv_num_heads = {}", heads, groups));
  for (unsigned operand : {0u, 1u, 2u, 4u, 5u})
    if (context.has(operand)) {
      if (llvm::Error error = requireRank(context, operand, 3))
        return error;
      for (int64_t axis : {0, 1})
        if (llvm::Error error =
                requireEqual(context, context.type(0).dim(axis), context.type(operand).dim(axis),
                             "batch sizes or lengths of the operands"))
          return error;
    }
  auto queryWidth = widthOf(context, 0, heads);
  if (!queryWidth)
    return queryWidth.takeError();
  auto keyWidth = widthOf(context, 1, groups);
  if (!keyWidth)
    return keyWidth.takeError();
  auto valueWidth = widthOf(context, 2, groups);
  if (!valueWidth)
    return valueWidth.takeError();
  if (llvm::Error error = requireEqual(context, *queryWidth, *keyWidth, "widths of query and key"))
    return error;
  const Dim batch = context.type(0).dim(0);
  const Shape state{batch, Dim::fixed(groups), mergedExtent(*queryWidth, *keyWidth), *valueWidth};
  if (context.has(3)) {
    if (llvm::Error error = requireRank(context, 3, 4))
      return error;
    for (unsigned axis = 0; axis < 4; ++axis)
      if (llvm::Error error = requireEqual(context, context.type(3).dim(axis), state[axis],
                                           "extents of the past state"))
        return error;
  }
  context.setResult(0, TensorType(context.element(0), Shape{batch, context.type(0).dim(1),
                                                            Dim::fixed(heads) * *valueWidth}));
  context.setResult(1, TensorType(context.element(context.has(3) ? 3 : 0), state));
  return llvm::Error::success();
}

llvm::Error inferCausalConvWithState(ShapeContext& context) {
  const std::pair<unsigned, unsigned> ranks[] = {{0, 3}, {1, 3}, {2, 1}, {3, 3}};
  for (const auto& [operand, rank] : ranks)
    if (context.has(operand))
      if (llvm::Error error = requireRank(context, operand, rank))
        return error;
  const TensorType& input = context.type(0);
  const TensorType& weight = context.type(1);
  if (llvm::Error error =
          requireEqual(context, input.dim(1), weight.dim(0), "channels of input and weight"))
    return error;
  if (llvm::Error error =
          requireEqual(context, weight.dim(1), Dim::fixed(1), "the weight's second extent and 1"))
    return error;
  const Dim kernel = weight.dim(2);
  if (kernel.value().value_or(1) < 1)
    return context.error("the kernel is empty");
  if (context.has(2))
    if (llvm::Error error = requireEqual(context, context.type(2).dim(0), weight.dim(0),
                                         "channels of bias and weight"))
      return error;
  const Shape state{input.dim(0), mergedExtent(input.dim(1), weight.dim(0)),
                    kernel - Dim::fixed(1)};
  if (context.has(3))
    for (unsigned axis = 0; axis < 3; ++axis)
      if (llvm::Error error = requireEqual(context, context.type(3).dim(axis), state[axis],
                                           "extents of the past state"))
        return error;
  context.setResult(0, TensorType(context.element(0), Shape{state[0], state[1], input.dim(2)}));
  context.setResult(1, TensorType(context.element(0), state));
  return llvm::Error::success();
}

} // namespace

void register_recurrent(OpRegistry& registry) {
  for (bool isContrib : {false, true}) {
    OpDefBuilder linear = isContrib ? define(registry, "com.microsoft::LinearAttention", 1)
                                    : define(registry, "LinearAttention", 27);
    linear.in("query").in("key").in("value").in("past_state?").in("decay?").in("beta?");
    linear.out("output").out("present_state");
    linear.attr("update_rule", "gated_delta")
        .attr("scale", 0.0f)
        .requiredAttr("q_num_heads", AttributeKind::Int)
        .requiredAttr("kv_num_heads", AttributeKind::Int)
        .attr("chunk_size", int64_t{64})
        .shape(inferLinearAttention);
    OpDefBuilder convolution = isContrib ? define(registry, "com.microsoft::CausalConvWithState", 1)
                                         : define(registry, "CausalConvWithState", 27);
    convolution.in("input").in("weight").in("bias?").in("past_state?");
    convolution.out("output").out("present_state");
    convolution.attr("activation", "none").shape(inferCausalConvWithState);
    if (!isContrib)
      continue;
    linear.attr("state_window", int64_t{0});
    convolution.attr("ndim", int64_t{1})
        .attr("dilation", int64_t{1})
        .attr("channels_last", int64_t{0})
        .attr("state_window", int64_t{0});
  }
}

} // namespace kvopt::ir
