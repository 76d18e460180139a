// How likely two models find the same text, token by token.
#pragma once

#include "driver/verify/text_reader.h"

#include <cstdint>
#include <vector>

namespace kvopt::driver {

/// What the scores of both models say about the same tokens, by their softmax.
struct LikelihoodReport {
  int64_t tokens = 0;      ///< that were predicted
  int64_t tokensAlike = 0; ///< of those, how often the most likely token is the same
  int64_t context = 0;     ///< of the windows, as the models take it
  double surpriseOfA = 0;  ///< sum of -ln p(token), in nats
  double surpriseOfB = 0;
  double divergence = 0; ///< sum of the Kullback-Leibler divergences of B from A, in nats

  /// exp of the mean surprise.
  double perplexityOfA() const;
  double perplexityOfB() const;
  /// Mean, in nats a token.
  double meanDivergence() const { return tokens == 0 ? 0 : divergence / double(tokens); }
};

/// Runs both models over the text, of which every token but the first of a window is predicted from
/// those before it. Fails where a model has no scores for tokens, where the two have
/// vocabularies of different sizes, for a token outside of that, and where nothing is predicted.
llvm::Expected<LikelihoodReport>
compareLikelihoods(const ir::Model& a, const ir::Manifest& manifestA, const ir::Model& b,
                   const ir::Manifest& manifestB, const TextPlan& plan, unsigned threads,
                   const Toolkit& toolkit);

} // namespace kvopt::driver
