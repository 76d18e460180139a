// The matrix between the two products of attention, for operators that also return it.
#pragma once

#include "runtime/attention/attention_call.h"

namespace kvopt::runtime {

/// Where in  weights = softmax(softcap(scale * Q K^T) + mask)  the matrix is taken.
/// In the order of Attention's qk_matmul_output_mode.
enum class ScoreStage {
  Scaled, ///< scale * Q K^T
  Capped, ///< softcap(scale * Q K^T), without the mask
  Masked, ///< softcap(scale * Q K^T) + mask: what the softmax reads
  Weights,
};

/// Result `result`, [B,H,S,C] of the query's element type, C being the key's capacity: the matrix
/// at `stage`. In `Masked` and `Weights`, keys that a row does not see are -inf (weight 0).
/// Requires that checkAttention succeeded; sinks are not supported.
llvm::Error attentionScoresResult(KernelContext& context, const AttentionOperands& operands,
                                  ScoreStage stage, unsigned result);

} // namespace kvopt::runtime
