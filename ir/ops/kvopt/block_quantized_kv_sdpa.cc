// ai.kvopt::BlockQuantizedKvSdpa: BlockKvSdpa over rows of int8 codes, with a scale for each.
//
// Codes and scales are those of ai.kvopt::QuantizeRows, of the new rows as well: key_new and
// value_new are int8 [B,G,S,D], key_scale_new and value_scale_new float [B,G,S,1]. `blocks` are
// first all blocks of the keys' codes, then as many of the values' codes, of the keys' scales and
// of the values' scales; scales are laid out as the codes, with one column. Attention is that of
// BlockKvSdpa over the rows that codes and scales stand for, in the query's type.
#include "ir/ops/kvopt/attention_shapes.h"

namespace kvopt::ir {

void register_block_quantized_kv_sdpa(OpRegistry& registry) {
  defineBlockKvSdpa(registry, "BlockQuantizedKvSdpa")
      .in("key_scale_new")
      .in("value_scale_new")
      .in("blocks*")
      .shape([](ShapeContext& context) { return inferBlockKvSdpa(context, /*hasScales=*/true); });
}

} // namespace kvopt::ir
