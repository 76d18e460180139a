// Selection of a token from a row of scores: the most likely one, or a random one.
#pragma once

#include "runtime/memory/tensor_view.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <vector>

namespace kvopt::runtime {

struct SamplingOptions {
  /// Divisor of scores; 0 selects the most likely token, the first of equal ones.
  double temperature = 0;
  /// Number of most likely tokens to choose from; 0 means all.
  int64_t topK = 0;
  /// Total probability of the most likely tokens to choose from (Holtzman et al., "The curious case
  /// of neural text degeneration"). Applied after topK.
  double topP = 1;
  uint64_t seed = 0;
};

/// A usage error unless the temperature is finite and not negative, 0 < topP <= 1, and topK is not
/// negative.
llvm::Error checkSampling(const SamplingOptions& options);

/// Position of a token. The result depends only on it, the seed and the scores, so that a sequence
/// which is cropped, saved or run in other chunks continues in the same way.
struct SamplingPlace {
  int64_t position = 0; ///< position in its sequence
  int64_t row = 0;      ///< row in the batch
};

/// Scores of one token as floats, from [V] float, float16 or bfloat16, which may be strided. An
/// error if there are none, or if one is NaN.
llvm::Expected<std::vector<float>> readScores(const TensorView& scores);
/// The same into `values`, whose storage is reused.
llvm::Error readScores(const TensorView& scores, std::vector<float>& values);

/// A token that may be selected.
struct SamplingCandidate {
  uint64_t weight = 0;
  float score = 0;
  int64_t token = 0;
};

/// Index of the largest score; the first of equal ones. Requires at least one score, none NaN.
int64_t largestScore(llvm::ArrayRef<float> scores);

/// Selects a token at random from softmax(scores / temperature), limited by topK and topP. After
/// two roundings of each score, everything is integer arithmetic: equal scores give the same token
/// on every machine. A token that is 2^40 times less likely than the most likely one is never
/// selected. Among equal scores, the lower index counts as more likely. Requires 1 to 2^23 scores
/// without NaN, and options that `checkSampling` accepts.
int64_t sampleToken(llvm::ArrayRef<float> scores, const SamplingOptions& options,
                    SamplingPlace place);
/// The same with candidates in `memory`, whose storage is reused.
int64_t sampleToken(llvm::ArrayRef<float> scores, const SamplingOptions& options,
                    SamplingPlace place, std::vector<SamplingCandidate>& memory);

/// round(2^40 * 2^-x) for x = units / 2^32, with an error below 2^9 units of 2^-40. For tests.
uint64_t powerOfHalf(uint64_t units);

} // namespace kvopt::runtime
