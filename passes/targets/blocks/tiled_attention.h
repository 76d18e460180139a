// Attention as a chain of ai.kvopt::AttentionTile.
#pragma once

#include "passes/targets/support/gapped_keys.h"

namespace kvopt::targets {

/// Rows in the order in which they are attended to: those of each block, then the new ones.
struct TiledRows {
  std::vector<ir::Value*> keys;   ///< [B,G,rows,D] each
  std::vector<ir::Value*> values; ///< [B,G,rows,Dv] each
  std::vector<int64_t> rows;      ///< of each block
};

/// What `sdpa` (ai.kvopt::Sdpa) computes over rows that lie as `keys` says, written before it,
/// [B,H,S,Dv]. The state between tiles is of the element type `state`. All layers share the mask
/// and the state before the first tile where those are the same.
ir::Value& tileAttention(ir::Node& sdpa, const TiledRows& rows, const GappedKeys& keys,
                         ir::ElementType state, pattern::Rewriter& rewriter);

} // namespace kvopt::targets
