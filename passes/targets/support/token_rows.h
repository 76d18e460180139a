// Attention by heads in the form of operators that take tokens: [B,H,S,D] as [B,S,H*D], and back.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// [B,H,S,D] as [B,S,H*D], from before it was split where it was. H and D are fixed.
ir::Value& tokenRows(ir::Value& heads, builders::AttentionBuilder& build);

/// [B,S,H,D] as [B,S,H*D], likewise.
ir::Value& mergedRows(ir::Value& rows, builders::AttentionBuilder& build);

/// Gives readers of the attention's [B,H,S,D], result 0 of `fused`, an operator's [B,S,H*D],
/// without the steps that make the one of the other where they are all that reads it.
void handOutTokenRows(ir::Node& fused, ir::Value& rows, pattern::Rewriter& rewriter);

} // namespace kvopt::targets
