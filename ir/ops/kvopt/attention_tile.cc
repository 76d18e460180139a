// ai.kvopt::AttentionTile: attention to some of the keys, merged with the result for earlier keys.
// The state between tiles is float32 or float16:
//
//   output   [B,H,S,Dv]       weighted mean of the values so far; initially 0
//   maximum  [B,H,S,1 or 2]   largest score so far; initially the lowest finite number (and 0). In
//                             float16 it is the sum of two numbers; the second is the rounding
//                             error of the first.
//   sum      [B,H,S,1]        1/64 of the sum of the weights exp(score - maximum); initially 0
//
// The results are the state after this tile. `mask` is added to scores; minus infinity hides a key,
// whatever the key contains. A row that has seen no key has output 0.
//
// The recurrence is online softmax (Milakov and Gimelshein, 2018) with a normalized output: a sum
// of many values would overflow float16, and so would an unscaled sum of weights. Weights are
// relative to the stored maximum, so that its rounding does not affect the result.
#include "ir/ops/kvopt/attention_shapes.h"
#include "ir/ops/kvopt/own_body.h"
#include "support/format.h"

namespace kvopt::ir {
namespace {

enum TileOperand : unsigned {
  TileQuery,
  TileKey,
  TileValues,
  TileMask,
  TileOutput,
  TileMaximum,
  TileSum
};

/// Fails unless the operand is [B,H,S,`width`] in float or float16.
llvm::Error checkState(const ShapeContext& context, unsigned operand, const Dim& width) {
  const ElementType element = context.element(operand);
  if (element != ElementType::Undefined && element != ElementType::Float &&
      element != ElementType::Float16)
    return context.error(
        formatted("a state of {} is neither of float32 nor of float16", dtypeName(element)));
  if (llvm::Error error = requireRank(context, operand, 4))
    return error;
  for (int64_t axis = 0; axis < 3; ++axis)
    if (llvm::Error error = requireEqual(context, context.type(operand).dim(axis),
                                         context.type(TileQuery).dim(axis),
                                         "extents of the state and of the query"))
      return error;
  return requireEqual(context, context.type(operand).dim(3), width, "columns of the state");
}

llvm::Error inferAttentionTile(ShapeContext& context) {
  if (llvm::Error error = checkAttentionOperands(context))
    return error;
  const Dim keys = mergedExtent(context.type(TileKey).dim(2), context.type(TileValues).dim(2));
  if (llvm::Error error = checkMask(context, TileMask, keys))
    return error;
  for (unsigned operand : {TileOutput, TileMaximum, TileSum}) {
    const bool isHalf = context.element(operand) == ElementType::Float16;
    const Dim width = operand == TileOutput              ? context.type(TileValues).dim(3)
                      : operand == TileMaximum && isHalf ? Dim::fixed(2)
                                                         : Dim::fixed(1);
    if (llvm::Error error = checkState(context, operand, width))
      return error;
    Shape shape{context.type(TileQuery).dim(0), context.type(TileQuery).dim(1),
                context.type(TileQuery).dim(2), width};
    context.setResult(operand - TileOutput, TensorType(context.element(operand), std::move(shape)));
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
