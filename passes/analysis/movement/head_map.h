// HeadMap: which head of a cache each query head reads, as a table of numbers.
#pragma once

#include "passes/analysis/movement/head_broadcast.h"
#include "passes/pattern/reason.h"

namespace kvopt::analysis {

/// Keys or values [B,H,T,D] as heads of a tensor: head h is head groupOf[h] of the source. Unlike
/// what `headSources` finds, the order is arbitrary, but all numbers are fixed.
struct HeadMap {
  HeadSource source;
  llvm::SmallVector<int64_t, 16> groupOf;

  /// Every head is itself.
  bool isIdentity() const;
};

/// What `heads` can be taken from, nearest first; `heads` itself is the first. Empty if the rank is
/// not four or the number of heads is not fixed.
std::vector<HeadMap> headMaps(ir::Value& heads);

/// How query heads are to be ordered so that those of each group are neighbors.
struct HeadGrouping {
  HeadSource keys, values;
  llvm::SmallVector<int64_t, 16> order; ///< the query head at each place

  bool keepsOrder() const;
};

/// The fewest heads that keys and values can both be read from by the same number of query heads
/// each; nullopt if they are these heads already, or if there are none. Then `failure` is set if
/// the tables are known but do not make groups.
std::optional<HeadGrouping> groupHeads(const ir::Value& query, ir::Value& keys, ir::Value& values,
                                       std::optional<pattern::MatchFailure>& failure);

} // namespace kvopt::analysis
