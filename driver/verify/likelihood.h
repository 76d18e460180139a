// Likelihood of a text according to two models, token by token.
#pragma once

#include "driver/verify/text_reader.h"

#include <cstdint>
#include <vector>

namespace kvopt::driver {

/// Predictions of two models for the same tokens: the softmax of their scores.
struct LikelihoodReport {
  int64_t tokens = 0;      ///< number of predicted tokens
  int64_t tokensAlike = 0; ///< number of predictions with the same most likely token
  int64_t context = 0;     ///< tokens of a window, as far as the models accept them
  double surpriseOfA = 0;  ///< sum of -ln p(token), in nats
  double surpriseOfB = 0;
  double divergence = 0; ///< sum of the Kullback-Leibler divergences of B from A, in nats

  /// Perplexity: exp of the mean surprise.
  double perplexityOfA() const;
  double perplexityOfB() const;
  /// Mean divergence in nats per token.
  double meanDivergence() const { return tokens == 0 ? 0 : divergence / double(tokens); }
};

/// Runs both models over the text. Each token of a window, except the first, is predicted from
/// those before it. Fails if a model has no scores for tokens, if the vocabularies differ in size,
/// if a token is outside the vocabulary, and if no token is predicted.
llvm::Expected<LikelihoodReport>
compareLikelihoods(const ir::Model& a, const ir::Manifest& manifestA, const ir::Model& b,
                   const ir::Manifest& manifestB, const TextPlan& plan, unsigned threads,
                   const Toolkit& toolkit);

} // namespace kvopt::driver
