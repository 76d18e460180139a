// Attention as a chain of ai.kvopt::AttentionTile.
#pragma once

#include "passes/targets/support/gapped_keys.h"

namespace kvopt::targets {

/// Rows in the order in which attention reads them: the rows of each block, then the new ones.
struct TiledRows {
  std::vector<ir::Value*> keys;   ///< [B,G,rows,D] each
  std::vector<ir::Value*> values; ///< [B,G,rows,Dv] each
  std::vector<int64_t> rows;      ///< number of rows of each block
};

/// [B,H,S,Dv]: the output of `sdpa` (ai.kvopt::Sdpa), computed before it over rows with the layout
/// `keys`. `state` is the element type of the state between tiles. Layers with the same mask and
/// first state share them.
ir::Value& tileAttention(ir::Node& sdpa, const TiledRows& rows, const GappedKeys& keys,
                         ir::ElementType state, pattern::Rewriter& rewriter);

} // namespace kvopt::targets
