// Selection of tokens by the scores of a step.
#pragma once

#include "runtime/session/sampling.h"
#include "runtime/session/step_result.h"

namespace kvopt::runtime {

/// The output with one row of scores per token: the only floating-point output [B,S,V] that is not
/// a cache. An error if there is none, or more than one.
llvm::Expected<const Tensor*> findLogits(const StepResult& result);

/// Scores [V] of the last token of batch row `row`, or of the token `before` positions earlier; an
/// error if there are none.
llvm::Expected<TensorView> lastScores(const Tensor& logits, int64_t row, int64_t before = 0);

/// Index of the largest score of the last token of batch row `batch`; the first of equal ones. An
/// error if a score is NaN.
llvm::Expected<int64_t> greedyToken(const Tensor& logits, int64_t batch);

/// Selects tokens according to the options. Reuses storage, so that selection does not allocate
/// memory.
class TokenChooser {
public:
  explicit TokenChooser(const SamplingOptions& sampling) : options(sampling) {}

  /// Selects the token for `place` from lastScores.
  llvm::Expected<int64_t> choose(const Tensor& logits, SamplingPlace place, int64_t before = 0);

private:
  SamplingOptions options;
  std::vector<float> scores;
  std::vector<SamplingCandidate> candidates;
};

} // namespace kvopt::runtime
