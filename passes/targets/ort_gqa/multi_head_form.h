// Attention to another sequence as com.microsoft.MultiHeadAttention, which ONNX Runtime computes
// over keys and values as they are.
//
//   before   o = ai.kvopt.Sdpa<scale>(q, past_key, past_value[, mask])
//   after    rows = com.microsoft.MultiHeadAttention<num_heads, scale>(
//                q by tokens, past_key, past_value[, , , mask])
#pragma once

#include "passes/targets/target.h"

namespace kvopt::targets {

/// nullopt if lowerMultiHead can write the site, and ONNX Runtime's CPU kernel runs the result as
/// fast as the exported operators; otherwise the reason.
std::optional<pattern::MatchFailure> multiHeadObstacle(const analysis::AttentionSite& site);

/// Writes a site without a multiHeadObstacle.
llvm::Error lowerMultiHead(analysis::AttentionSite& site, pattern::Journal& journal);

} // namespace kvopt::targets
