// Where tokens are chosen: by the scores that a step gives.
#pragma once

#include "runtime/session/sampling.h"
#include "runtime/session/step_result.h"

namespace kvopt::runtime {

/// The output that holds one row of scores per token: the only floating-point output [B,S,V] that
/// is not a cache. An error when there is none or several.
llvm::Expected<const Tensor*> findLogits(const StepResult& result);

/// Scores of the last token of batch row `row`, or of the `before`-th before it, [V]; an error when
/// there are none.
llvm::Expected<TensorView> lastScores(const Tensor& logits, int64_t row, int64_t before = 0);

/// Index of the largest score of the last token of batch row `batch`; the first of equal ones. An
/// error when a score is NaN.
llvm::Expected<int64_t> greedyToken(const Tensor& logits, int64_t batch);

/// Chooses tokens as the options say. Its storage is used again, so that choosing allocates
/// nothing.
class TokenChooser {
public:
  explicit TokenChooser(const SamplingOptions& sampling) : options(sampling) {}

  /// The token that is drawn from lastScores for `place`.
  llvm::Expected<int64_t> choose(const Tensor& logits, SamplingPlace place, int64_t before = 0);

private:
  SamplingOptions options;
  std::vector<float> scores;
  std::vector<SamplingCandidate> candidates;
};

} // namespace kvopt::runtime
