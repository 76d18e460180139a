// Attention spelled out: matrix products, a softmax and what masks it, in standard operators.
#pragma once

#include "passes/builders/attention_builder.h"
#include "passes/targets/support/gapped_keys.h"

namespace kvopt::targets {

/// Why `sdpa` (ai.kvopt::Sdpa) cannot be spelled out; nullopt if it can.
std::optional<pattern::MatchFailure> spellingObstacle(const ir::Node& sdpa);

/// What `sdpa` computes, written before it, [B,H,S,Dv]. Keys and values are broadcast over the
/// query heads of their group and never repeated; sums are in float for narrower elements. Each row
/// without any visible key is zeros.
ir::Value& spellAttention(ir::Node& sdpa, pattern::Rewriter& rewriter);

/// The same over keys and values that have come to lie as `keys` says, with a gap. The type of the
/// key operand still tells how many keys there are without it. Values in the gap are multiplied by
/// 0 and must be finite; keys there may be anything. Requires that there are no lengths of rows.
ir::Value& spellAttention(ir::Node& sdpa, const GappedKeys& keys, pattern::Rewriter& rewriter);

/// What `append` (ai.kvopt::AppendRows) computes, written before it.
ir::Value& spellAppendRows(ir::Node& append, pattern::Rewriter& rewriter);

} // namespace kvopt::targets
