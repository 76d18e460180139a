// ai.kvopt::BlockKvSdpa: attention over a past that lies in blocks, and the new tokens' keys and
// values behind it. `blocks` are first all blocks of the keys and then as many of the values, in
// the order of their tokens; each has as many rows as it holds tokens, which may be none.
#include "ir/ops/kvopt/attention_shapes.h"

namespace kvopt::ir {

void register_block_kv_sdpa(OpRegistry& registry) {
  defineBlockKvSdpa(registry, "BlockKvSdpa").in("blocks*").shape([](ShapeContext& context) {
    return inferBlockKvSdpa(context, /*hasScales=*/false);
  });
}

} // namespace kvopt::ir
