// ai.kvopt::RingKvSdpa: attention over a cache of C slots that holds the last C tokens' keys and
// values: the row of position p lies in slot p mod C.
//
// With P = past_length and n = min(P, C - 1), attention is that of ai.kvopt::Sdpa over the rows of
// positions [P - n, P), from the cache, and behind them the S new rows. A query of a single token
// thus sees C keys at most, its own included. The mask's last column is that of the last new row;
// of a mask with more than n + S columns the last n + S are read, so that one over all positions
// will do. S may exceed C. Slots that no token was written to are never read.
#include "ir/ops/kvopt/attention_shapes.h"

namespace kvopt::ir {
namespace {

llvm::Error inferRingKvSdpa(ShapeContext& context) {
  if (llvm::Error error = checkAttentionOperands(context))
    return error;
  const CacheSide key{1, 3, "key_axis", ElementType::Undefined, true};
  const CacheSide value{2, 4, "value_axis", ElementType::Undefined, true};
  llvm::Expected<Dim> keySlots = checkCache(context, key);
  if (!keySlots)
    return keySlots.takeError();
  llvm::Expected<Dim> valueSlots = checkCache(context, value);
  if (!valueSlots)
    return valueSlots.takeError();
  if (llvm::Error error = requireEqual(context, *keySlots, *valueSlots, "numbers of slots"))
    return error;
  if (keySlots->isKnownLess(Dim::fixed(1)))
    return context.error("a ring needs at least one slot");
  if (llvm::Error error = checkPastLength(context, 5, Dim::fixed(1)))
    return error;
  if (llvm::Error error = checkMaskAndSinks(context, 6))
    return error;
  context.setResult(0, attentionResultType(context));
  context.setResult(1, context.type(3));
  context.setResult(2, context.type(4));
  return llvm::Error::success();
}

} // namespace

void register_ring_kv_sdpa(OpRegistry& registry) {
  OpDefBuilder definition = define(registry, OpName(kvoptDomain, "RingKvSdpa"), 1);
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
      .shape(inferRingKvSdpa);
}

} // namespace kvopt::ir
