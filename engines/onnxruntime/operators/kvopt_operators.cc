// The table of ai.kvopt's operators.
#include "engines/onnxruntime/operators/attention_tile.h"
#include "engines/onnxruntime/operators/cache_attention.h"
#include "engines/onnxruntime/operators/row_operators.h"
#include "engines/onnxruntime/operators/sdpa.h"

#include <cstring>

namespace kvopt::onnxruntime {

namespace {

std::vector<KvoptOperator> allOperators() {
  std::vector<KvoptOperator> all = {
      {"AppendRows", appendRows, appendRowsTypes()},
      {"AttentionTile", attentionTile, attentionTileTypes()},
      {"QuantizeRows", quantizeRows, quantizeRowsTypes()},
      {"QuantizedSdpa", quantizedSdpa, quantizedSdpaTypes()},
      {"Sdpa", sdpa, sdpaTypes()},
  };
  for (const ir::CacheOperatorForm& form : ir::cacheOperatorForms)
    all.push_back({form.name + std::strlen(kvoptDomain) + std::strlen("::"), cacheAttention,
                   cacheAttentionTypes(form)});
  return all;
}

} // namespace

std::span<const KvoptOperator> kvoptOperators() {
  static const std::vector<KvoptOperator> all = allOperators();
  return all;
}

} // namespace kvopt::onnxruntime
