// Factors of attention's two products, arranged as attention reads them.
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

/// Reads `scores` at one point. Each element must be the same multiple of one element of `product`;
/// queries are constant along the last axis, keys along the axis before it. nullopt for other
/// scores.
std::optional<ArrangedScores> arrangedScores(const ir::Value& scores, const ir::Node& product,
                                             Evaluation& evaluation);

/// The product of probabilities [B,H,S,T] and values.
struct ArrangedOutput {
  ArrangedElements values; ///< [B,H,T,D]
  /// The result of the product as elements of [B,H,S,D]; it has no source.
  ArrangedElements result;
};

/// Reads `product` at one point. One factor must consist of elements of `probabilities`, and each
/// element of the result must sum over the keys of one row in their order. nullopt for other
/// products.
std::optional<ArrangedOutput> arrangedOutput(const ir::Node& product, bool hasValuesLeft,
                                             const ir::Value& probabilities,
                                             Evaluation& evaluation);

} // namespace kvopt::analysis
