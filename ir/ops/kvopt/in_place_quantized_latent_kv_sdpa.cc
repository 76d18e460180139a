// ai.kvopt::InPlaceQuantizedLatentKvSdpa: InPlaceLatentKvSdpa over a cache of codes, with a scale
// for each row.
//
// Rows are kept, and stand for numbers, as in_place_quantized_kv_sdpa.cc has it. Values are columns
// of the rows, and have their scales. Of four-bit codes these columns must be whole groups.
#include "ir/ops/kvopt/attention_shapes.h"
#include "ir/ops/kvopt/own_body.h"

namespace kvopt::ir {
namespace {

llvm::Error inferInPlaceQuantizedLatentKvSdpa(ShapeContext& context) {
  if (llvm::Error error = checkLatentOperands(context))
    return error;
  const ElementType held =
      context.element(2) == ElementType::UInt8 ? ElementType::UInt8 : ElementType::Int8;
  const CacheSide side{1, 2, "key_axis", held};
  llvm::Expected<Dim> capacity = checkCache(context, side);
  if (!capacity)
    return capacity.takeError();
  if (llvm::Error error = checkCacheScales(context, side, 3))
    return error;
  if (llvm::Error error = checkPastLength(context, 4, context.type(0).dim(0)))
    return error;
  if (llvm::Error error = checkMaskAndSinks(context, 5))
    return error;
  llvm::Expected<TensorType> output = latentResultType(context);
  if (!output)
    return output.takeError();
  context.setResult(0, std::move(*output));
  context.setResult(1, context.type(2));
  context.setResult(2, context.type(3));
  return llvm::Error::success();
}

} // namespace

void register_in_place_quantized_latent_kv_sdpa(OpRegistry& registry) {
  OpDefBuilder definition =
      define(registry, OpName(kvoptDomain, "InPlaceQuantizedLatentKvSdpa"), 1);
  addAttentionAttributes(definition);
  definition.in("query")
      .in("key_new")
      .in("past_key")
      .in("past_key_scale")
      .in("past_length")
      .in("mask?")
      .in("sinks?")
      .out("output")
      .out("present_key")
      .out("present_key_scale")
      .requiredAttr("v_width", AttributeKind::Int)
      .attr("v_offset", int64_t{0})
      .attr("key_axis", int64_t{2})
      .inPlace(1, 2)
      .inPlace(2, 3)
      .shape(inferInPlaceQuantizedLatentKvSdpa)
      .body(checkOwnBody);
}

} // namespace kvopt::ir
