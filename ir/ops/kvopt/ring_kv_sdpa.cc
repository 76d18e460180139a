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

void register_ring_kv_sdpa(OpRegistry& registry) {
  defineKvSdpa(registry, "RingKvSdpa").shape([](ShapeContext& context) {
    return inferKvSdpa(context, /*isRing=*/true);
  });
}

} // namespace kvopt::ir
