// ai.kvopt::Sdpa: attention in its canonical form, [B,H,S,D] layout, every option explicit.
//
// With past_length, [1] or [B], batch row b has past_length[b] + S keys, and query row i stands at
// position past_length[b] + i; keys beyond are never read. The mask then has a column for each of T
// keys, or for each of those that the longest batch row has. Without past_length there are T - S
// keys before row 0. Keys and values of int8 are the numbers that they are.
#include "ir/ops/kvopt/attention_shapes.h"
#include "ir/ops/kvopt/own_body.h"

namespace kvopt::ir {
namespace {

llvm::Error inferSdpa(ShapeContext& context) {
  if (llvm::Error error = checkAttentionOperands(context))
    return error;
  Dim tokens = mergedExtent(context.type(1).dim(2), context.type(2).dim(2));
  if (llvm::Error error = checkMask(context, 3, context.has(5) ? Dim::unknown() : tokens))
    return error;
  if (llvm::Error error = checkSinks(context, 4))
    return error;
  if (llvm::Error error = checkPastLength(context, 5, context.type(0).dim(0)))
    return error;
  context.setResult(0, attentionResultType(context));
  return llvm::Error::success();
}

} // namespace

void register_sdpa(OpRegistry& registry) {
  define(registry, OpName(kvoptDomain, "Sdpa"), 1)
      .in("query")
      .in("key")
      .in("value")
      .in("mask?")
      .in("sinks?")
      .in("past_length?")
      .out("output")
      .requiredAttr("scale", AttributeKind::Float)
      .attr("causal", int64_t{0})
      .attr("window", int64_t{0})
      .attr("softcap", 0.0f)
      // Written where the function body is to run: it cannot ask for the mask's element type.
      .attr("mask_boolean", AttributeKind::Int)
      .shape(inferSdpa)
      .body(checkOwnBody);
}

} // namespace kvopt::ir
