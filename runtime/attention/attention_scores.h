// Score matrix of attention, for operators that also return it.
#pragma once

#include "runtime/attention/attention_call.h"

namespace kvopt::runtime {

/// Stage of  weights = softmax(softcap(scale * Q K^T) + mask)  at which the matrix is returned, in
/// the order of Attention's qk_matmul_output_mode.
enum class ScoreStage {
  Scaled, ///< scale * Q K^T
  Capped, ///< softcap(scale * Q K^T), without the mask
  Masked, ///< softcap(scale * Q K^T) + mask: the operand of the softmax
  Weights,
};

/// Result `result` [B,H,S,C] with the query's element type, where C is the key's capacity: the
/// matrix at `stage`. In `Masked` and `Weights`, hidden keys are -inf (weight 0). Requires that
/// checkAttention succeeded; sinks are not supported.
llvm::Error attentionScoresResult(KernelContext& context, const AttentionOperands& operands,
                                  ScoreStage stage, unsigned result);

} // namespace kvopt::runtime
