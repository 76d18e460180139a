// CachedRows: which rows of a cache, and which new ones, a value holds, and where.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"
#include "passes/analysis/evaluation/movement_fit.h"

namespace kvopt::analysis {

/// What the elements of one value are at one point of evaluation: elements of a cache that comes
/// in, of one other value, or of both, told apart along one axis.
struct CachedRows {
  Extents extents;                  ///< of the value
  double factor = 1;                ///< what all elements are multiplied by
  const ir::Value* past = nullptr;  ///< an input of the graph; null: nothing is of a cache
  const ir::Value* fresh = nullptr; ///< null: everything is of the cache
  /// Where new rows are, along `axis`: [first, first + count). All of them, without a cache.
  unsigned axis = 0;
  int64_t first = 0;
  int64_t count = 0;
  /// Of the value's elements that are of `past`, with the axis from 0 on, and of those that are of
  /// `fresh`, with the axis from the first new row on.
  MovementFit ofPast;
  MovementFit ofFresh;
  Extents pastExtents;
  Extents freshExtents;

  bool isAppended() const { return past && fresh && first + count == extents[axis]; }
};

/// The cache whose elements `rows`, [B,H,T,D] as attention reads them, holds together with other
/// elements. Null where all elements are of inputs, or none is. One column of the first head is
/// read.
const ir::Value* joinedPast(const ir::Value& rows, Evaluation& evaluation);

/// Values that could be `CachedRows::fresh`: those with as many elements as there are new ones in
/// `value`, all of them, nearest the blocks first.
std::vector<const ir::Value*> freshCandidates(const ir::Value& value, Evaluation& evaluation);

/// The rows of `value`, whose new ones are those of `fresh` (null: there must be none). nullopt
/// where something in it is neither, or its elements do not lie along axes.
std::optional<CachedRows> cachedRows(const ir::Value& value, const ir::Value* fresh,
                                     Evaluation& evaluation);

} // namespace kvopt::analysis
