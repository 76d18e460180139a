// ai.kvopt::InPlaceKvSdpa: attention over a cache of fixed capacity that the new tokens' keys and
// values are written into.
#include "ir/ops/kvopt/attention_shapes.h"

namespace kvopt::ir {
namespace {

llvm::Error inferInPlaceKvSdpa(ShapeContext& context) {
  if (llvm::Error error = checkAttentionOperands(context))
    return error;
  // The number of tokens attended to is known to past_length only.
  llvm::Expected<Dim> keyCapacity = checkCache(context, {1, 3, "key_axis"});
  if (!keyCapacity)
    return keyCapacity.takeError();
  llvm::Expected<Dim> valueCapacity = checkCache(context, {2, 4, "value_axis"});
  if (!valueCapacity)
    return valueCapacity.takeError();
  if (llvm::Error error = requireEqual(context, *keyCapacity, *valueCapacity, "capacities"))
    return error;
  if (llvm::Error error = checkPastLength(context, 5, context.type(0).dim(0)))
    return error;
  if (llvm::Error error = checkMaskAndSinks(context, 6))
    return error;
  context.setResult(0, attentionResultType(context));
  context.setResult(1, context.type(3));
  context.setResult(2, context.type(4));
  return llvm::Error::success();
}

} // namespace

void register_in_place_kv_sdpa(OpRegistry& registry) {
  OpDefBuilder definition = define(registry, OpName(kvoptDomain, "InPlaceKvSdpa"), 1);
  addAttentionAttributes(definition);
  definition.in("query")
      .in("key_new")
      .in("value_new")
      .in("past_key")
      .in("past_value")
      .in("past_length")
      .in("mask?")
      .in("sinks?")
      .out("output")
      .out("present_key")
      .out("present_value")
      .attr("key_axis", int64_t{2})
      .attr("value_axis", int64_t{2})
      .inPlace(1, 3)
      .inPlace(2, 4)
      .shape(inferInPlaceKvSdpa);
}

} // namespace kvopt::ir
