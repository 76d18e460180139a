// Whether only differences of positions affect a decoder, and the rotations of its cached rows.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/analysis/rotation/row_rotation.h"
#include "passes/pattern/reason.h"

#include <map>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::analysis {

/// Rotations that move cached rows to other positions.
struct ContextRotations {
  /// Distinct rotations.
  std::vector<RowRotation> distinct;
  /// Index of the rotation of the rows in a cache, by the cache's input. Rows of other caches do
  /// not depend on positions.
  std::map<std::string, size_t> byPast;
};

/// The rotations of a graph in which attention was raised. Keys and queries of each site must be
/// rotated alike, by multiples of the position; masks must depend on differences of positions;
/// nothing else may depend on positions. Otherwise the first violation: `position-absolute`, or
/// `rotation-unknown` if rows depend on positions in another way than a rotation.
std::variant<ContextRotations, pattern::MatchFailure>
findContextRotations(const ir::Graph& graph, llvm::ArrayRef<AttentionSite> sites);

} // namespace kvopt::analysis
