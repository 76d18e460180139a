// Whether positions come into a decoder by their differences only, and which rotations its cached
// rows hold.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/analysis/rotation/row_rotation.h"
#include "passes/pattern/reason.h"

#include <map>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::analysis {

/// What has to be done to cached rows so that they are those of other positions.
struct ContextRotations {
  /// Each once.
  std::vector<RowRotation> distinct;
  /// By the input of a cache, the index of the rotation that its rows hold. Other caches hold rows
  /// that do not depend on positions.
  std::map<std::string, size_t> byPast;
};

/// The rotations of a graph in which attention was raised. Keys and queries of each site must be
/// rotated alike, by multiples of the position; masks must see positions as differences; and
/// nothing else may depend on positions. Otherwise the first reason why that is not so:
/// `position-absolute`, or `rotation-unknown` where rows depend on positions in another way than a
/// rotation.
std::variant<ContextRotations, pattern::MatchFailure>
findContextRotations(const ir::Graph& graph, llvm::ArrayRef<AttentionSite> sites);

} // namespace kvopt::analysis
