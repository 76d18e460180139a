// The factors of attention's two products, arranged as attention reads them.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"

#include <vector>

namespace kvopt::analysis {

/// A tensor of `extents` whose element i, in row-major order, is element elements[i] of `source`.
struct ArrangedElements {
  const ir::Value* source = nullptr;
  Extents extents;
  std::vector<int64_t> elements;
};

/// Scores [B,H,S,T] as `factor` times the products of queries and keys.
struct ArrangedScores {
  ArrangedElements queries; ///< [B,H,S,D]
  ArrangedElements keys;    ///< [B,H,T,D]
  double factor = 1;
};

/// Reads `scores` at one point, where each element is the same multiple of one element of
/// `product`. Queries stay the same along the last axis, keys along the one before. nullopt where
/// the scores are something else.
std::optional<ArrangedScores> arrangedScores(const ir::Value& scores, const ir::Node& product,
                                             Evaluation& evaluation);

/// The product of probabilities [B,H,S,T] and values.
struct ArrangedOutput {
  ArrangedElements values; ///< [B,H,T,D]
  /// The result of the product, of the elements of [B,H,S,D] results; without a source.
  ArrangedElements result;
};

/// Reads `product` at one point, where one factor holds elements of `probabilities` and nothing
/// else, and each element of the result sums over the keys of one row in their order. nullopt where
/// it does something else.
std::optional<ArrangedOutput> arrangedOutput(const ir::Node& product, bool hasValuesLeft,
                                             const ir::Value& probabilities,
                                             Evaluation& evaluation);

} // namespace kvopt::analysis
