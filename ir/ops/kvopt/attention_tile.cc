// ai.kvopt::AttentionTile: attention to some of the keys, merged into what attention to others
// before them has made. The state between tiles is of float32 or float16:
//
//   output   [B,H,S,Dv]       the weighted mean of the values so far; 0 at first
//   maximum  [B,H,S,1 or 2]   the largest score so far; in float16 it is the sum of two numbers, of
//                             which the second is what rounding the first has lost. At first it is
//                             the lowest finite number (and 0)
//   sum      [B,H,S,1]        1/64 of the sum of the weights exp(score - maximum); 0 at first
//
// The results are the state after this tile. `mask` is added to scores; minus infinity hides a key,
// whatever the key holds. A row that has seen no key has output 0.
//
// The recurrence is that of online softmax (Milakov and Gimelshein, 2018), with the output kept
// normalized: a sum of many values would overflow float16, as would a sum of weights were it not
// scaled. Weights are taken from the maximum as it is stored, so that rounding it costs nothing.
#include "ir/ops/kvopt/attention_shapes.h"
#include "ir/ops/kvopt/own_body.h"
#include "support/format.h"

namespace kvopt::ir {
namespace {

enum Operand : unsigned { Query, Key, Values, Mask, Output, Maximum, Sum };

/// Fails unless the operand is [B,H,S,`width`] in float or float16.
llvm::Error checkState(const ShapeContext& context, unsigned operand, const Dim& width) {
  const ElementType element = context.element(operand);
  if (element != ElementType::Undefined && element != ElementType::Float &&
      element != ElementType::Float16)
    return context.error(
        fmt::format("a state of {} is neither of float32 nor of float16", dtypeName(element)));
  if (llvm::Error error = requireRank(context, operand, 4))
    return error;
  for (int64_t axis = 0; axis < 3; ++axis)
    if (llvm::Error error =
            requireEqual(context, context.type(operand).dim(axis), context.type(Query).dim(axis),
                         "extents of the state and of the query"))
      return error;
  return requireEqual(context, context.type(operand).dim(3), width, "columns of the state");
}

llvm::Error inferAttentionTile(ShapeContext& context) {
  if (llvm::Error error = checkAttentionOperands(context))
    return error;
  const Dim keys = mergedExtent(context.type(Key).dim(2), context.type(Values).dim(2));
  if (llvm::Error error = checkMask(context, Mask, keys))
    return error;
  for (unsigned operand : {Output, Maximum, Sum}) {
    const bool isHalf = context.element(operand) == ElementType::Float16;
    const Dim width = operand == Output              ? context.type(Values).dim(3)
                      : operand == Maximum && isHalf ? Dim::fixed(2)
                                                     : Dim::fixed(1);
    if (llvm::Error error = checkState(context, operand, width))
      return error;
    Shape shape{context.type(Query).dim(0), context.type(Query).dim(1), context.type(Query).dim(2),
                width};
    context.setResult(operand - Output, TensorType(context.element(operand), std::move(shape)));
  }
  return llvm::Error::success();
}

} // namespace

void register_attention_tile(OpRegistry& registry) {
  define(registry, OpName(kvoptDomain, "AttentionTile"), 1)
      .in("query")
      .in("key")
      .in("value")
      .in("mask")
      .in("output")
      .in("maximum")
      .in("sum")
      .out("next_output")
      .out("next_maximum")
      .out("next_sum")
      .attr("scale", 1.0f)
      .attr("softcap", 0.0f)
      .shape(inferAttentionTile)
      .body(checkOwnBody);
}

} // namespace kvopt::ir
