// HeadMap: the head of a cache that each query head reads, as a table of numbers.
#pragma once

#include "passes/analysis/movement/head_broadcast.h"
#include "passes/pattern/reason.h"

namespace kvopt::analysis {

/// Keys or values [B,H,T,D] as heads of a tensor: head h is head groupOf[h] of the source. Unlike
/// in the result of `headSources`, the order is arbitrary, but all numbers are fixed.
struct HeadMap {
  HeadSource source;
  llvm::SmallVector<int64_t, 16> groupOf;

  /// Whether every head maps to itself.
  bool isIdentity() const;
};

/// Possible sources of `heads`, nearest first, starting with `heads` itself. Empty if the rank is
/// not four or the number of heads is not fixed.
std::vector<HeadMap> headMaps(ir::Value& heads);

/// Order of query heads in which those of each group are neighbors.
struct HeadGrouping {
  HeadSource keys, values;
  llvm::SmallVector<int64_t, 16> order; ///< the query head at each position

  bool keepsOrder() const;
};

/// The grouping with the fewest heads from which keys and values can both be read, each by the same
/// number of query heads; nullopt if they are those heads already, or if there is no grouping. In
/// the latter case `failure` is set if the tables are known but do not form groups.
std::optional<HeadGrouping> groupHeads(const ir::Value& query, ir::Value& keys, ir::Value& values,
                                       std::optional<pattern::MatchFailure>& failure);

} // namespace kvopt::analysis
