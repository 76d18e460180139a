// Decomposed attention: matrix products, masking and a softmax in standard operators.
#pragma once

#include "passes/builders/attention_builder.h"
#include "passes/targets/support/gapped_keys.h"

namespace kvopt::targets {

/// Reason why `sdpa` (ai.kvopt::Sdpa) cannot be decomposed; nullopt if it can.
std::optional<pattern::MatchFailure> spellingObstacle(const ir::Node& sdpa);

/// [B,H,S,Dv]: the output of `sdpa`, computed before it. Keys and values are broadcast over the
/// query heads of their group, without copies; narrower elements are summed in float. A row without
/// a visible key yields zeros.
ir::Value& spellAttention(ir::Node& sdpa, pattern::Rewriter& rewriter);

/// The same for keys and values with a gap, in the layout `keys`. The type of the key operand still
/// has the number of keys without the gap. Values in the gap are multiplied by 0 and must be
/// finite; keys there may be anything. Requires attention without lengths of rows.
ir::Value& spellAttention(ir::Node& sdpa, const GappedKeys& keys, pattern::Rewriter& rewriter);

/// The result of `append` (ai.kvopt::AppendRows), computed before it.
ir::Value& spellAppendRows(ir::Node& append, pattern::Rewriter& rewriter);

} // namespace kvopt::targets
