// ai.kvopt::RingQuantizedKvSdpa: RingKvSdpa over caches of codes, with a scale for each row.
//
// Slots and attention are those of RingKvSdpa (ring_kv_sdpa.cc), codes, scales and the rows that
// they stand for those of InPlaceQuantizedKvSdpa (in_place_quantized_kv_sdpa.cc). Attention
// sees the rounded values of new rows, even of those for which a long step leaves no slot.
#include "ir/ops/kvopt/attention_shapes.h"

namespace kvopt::ir {

void register_ring_quantized_kv_sdpa(OpRegistry& registry) {
  defineQuantizedKvSdpa(registry, "RingQuantizedKvSdpa").shape([](ShapeContext& context) {
    return inferQuantizedKvSdpa(context, /*isRing=*/true);
  });
}

} // namespace kvopt::ir
