// Greedy decoding: prompt in, most likely tokens out, one by one.
#pragma once

#include "runtime/session.h"

namespace kvopt {

struct GenerationResult {
  std::vector<int64_t> tokens; ///< without the prompt
  int64_t promptTokens = 0;
  int64_t decodeSteps = 0;
  double prefillSeconds = 0;
  double decodeSeconds = 0;
};

/// The output that holds one row of scores per token: the only floating-point output [B,S,V] that
/// is no cache. An error when there is none or several.
llvm::Expected<const Tensor*> findLogits(const StepResult& result);

/// Index of the largest score of the last token of batch row `batch`; the first of equal ones. An
/// error when a score is NaN.
llvm::Expected<int64_t> greedyToken(const Tensor& logits, int64_t batch);

/// Prefills `prompt` and appends the most likely token `steps` times, in a session of batch 1. The
/// session's length grows by the prompt and by all new tokens but the last.
llvm::Expected<GenerationResult> generateGreedily(Session& session, llvm::ArrayRef<int64_t> prompt,
                                                  int64_t steps);

} // namespace kvopt
