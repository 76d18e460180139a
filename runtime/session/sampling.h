// Choosing a token from a row of scores: the most likely one, or one drawn at random.
#pragma once

#include "runtime/memory/tensor_view.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <vector>

namespace kvopt::runtime {

struct SamplingOptions {
  /// Scores are divided by it; 0 takes the most likely token, the first of equal ones.
  double temperature = 0;
  /// Only the so many most likely tokens take part; 0: all.
  int64_t topK = 0;
  /// Only the most likely tokens that together have at least this probability take part (Holtzman
  /// et al., "The curious case of neural text degeneration"). Applied after topK.
  double topP = 1;
  uint64_t seed = 0;
};

/// Temperature finite and not negative, 0 < topP <= 1, topK not negative; else a usage error.
llvm::Error checkSampling(const SamplingOptions& options);

/// Where a token will stand: what is drawn depends on this, the seed and the scores only, so that a
/// sequence which is cropped, saved or run in other chunks goes on as it would have.
struct SamplingPlace {
  int64_t position = 0; ///< in its sequence
  int64_t row = 0;      ///< of the batch
};

/// The scores of one token as numbers, from [V] float, float16 or bfloat16, strided or not. An
/// error when there are none, or one is NaN.
llvm::Expected<std::vector<float>> readScores(const TensorView& scores);
/// The same into `values`, whose storage is used again.
llvm::Error readScores(const TensorView& scores, std::vector<float>& values);

/// A token that a draw may take.
struct SamplingCandidate {
  uint64_t weight = 0;
  float score = 0;
  int64_t token = 0;
};

/// Index of the largest score; the first of equal ones. Requires at least one score, none NaN.
int64_t largestScore(llvm::ArrayRef<float> scores);

/// Draws from softmax(scores / temperature), restricted by topK and topP. Everything behind two
/// roundings of a score is integer arithmetic: equal scores give the same token on every machine.
/// A token 2^40 times less likely than the most likely one is never drawn. Of equal scores the
/// lower index counts as more likely. Requires 1 to 2^23 scores, none NaN, and options that
/// `checkSampling` accepts.
int64_t sampleToken(llvm::ArrayRef<float> scores, const SamplingOptions& options,
                    SamplingPlace place);
/// The same with candidates in `memory`, whose storage is used again.
int64_t sampleToken(llvm::ArrayRef<float> scores, const SamplingOptions& options,
                    SamplingPlace place, std::vector<SamplingCandidate>& memory);

/// round(2^40 * 2^-x) for x = units / 2^32, to within 2^9 units of 2^-40. For tests.
uint64_t powerOfHalf(uint64_t units);

} // namespace kvopt::runtime
