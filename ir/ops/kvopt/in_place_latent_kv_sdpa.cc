// ai.kvopt::InPlaceLatentKvSdpa: attention over a single cache whose rows are keys, with values
// among their columns.
#include "ir/ops/kvopt/attention_shapes.h"
#include "ir/ops/kvopt/own_body.h"

namespace kvopt::ir {
namespace {

llvm::Error inferInPlaceLatentKvSdpa(ShapeContext& context) {
  if (llvm::Error error = checkLatentOperands(context))
    return error;
  llvm::Expected<Dim> capacity = checkCache(context, {1, 2, "key_axis"});
  if (!capacity)
    return capacity.takeError();
  if (llvm::Error error = checkPastLength(context, 3, context.type(0).dim(0)))
    return error;
  if (llvm::Error error = checkMaskAndSinks(context, 4))
    return error;
  llvm::Expected<TensorType> output = latentResultType(context);
  if (!output)
    return output.takeError();
  context.setResult(0, std::move(*output));
  context.setResult(1, context.type(2));
  return llvm::Error::success();
}

} // namespace

void register_in_place_latent_kv_sdpa(OpRegistry& registry) {
  OpDefBuilder definition = define(registry, OpName(kvoptDomain, "InPlaceLatentKvSdpa"), 1);
  addAttentionAttributes(definition);
  definition.in("query")
      .in("key_new")
      .in("past_key")
      .in("past_length")
      .in("mask?")
      .in("sinks?")
      .out("output")
      .out("present_key")
      .requiredAttr("v_width", AttributeKind::Int)
      .attr("v_offset", int64_t{0})
      .attr("key_axis", int64_t{2})
      .inPlace(1, 2)
      .shape(inferInPlaceLatentKvSdpa)
      .body(checkOwnBody);
}

} // namespace kvopt::ir
