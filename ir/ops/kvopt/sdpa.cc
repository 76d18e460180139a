// ai.kvopt::Sdpa: attention in canonical form, with layout [B,H,S,D] and all options explicit.
//
// With past_length, [1] or [B], batch row b has past_length[b] + S keys, and query row i is at
// position past_length[b] + i; later keys are never read. The mask then has one column for each of
// the T keys, or for each key of the longest batch row. Without past_length there are T - S keys
// before query row 0. Int8 keys and values are numbers, not codes.
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
      // Required where the function body is run, because it cannot query the mask's element type.
      .attr("mask_boolean", AttributeKind::Int)
      .shape(inferSdpa)
      .body(checkOwnBody);
}

} // namespace kvopt::ir
