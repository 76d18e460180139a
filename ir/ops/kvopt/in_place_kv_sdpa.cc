// ai.kvopt::InPlaceKvSdpa: attention over a cache of fixed capacity that the new tokens' keys and
// values are written into.
#include "ir/ops/kvopt/attention_shapes.h"

namespace kvopt::ir {

void register_in_place_kv_sdpa(OpRegistry& registry) {
  defineKvSdpa(registry, "InPlaceKvSdpa").shape([](ShapeContext& context) {
    return inferKvSdpa(context, /*isRing=*/false);
  });
}

} // namespace kvopt::ir
