// CachedRows: the rows of a cache, and the new rows, that a value holds, and their positions.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"
#include "passes/analysis/evaluation/movement_fit.h"

namespace kvopt::analysis {

/// Elements of one value at one point of evaluation: elements of an input cache, of one other
/// value, or of both, separated along one axis.
struct CachedRows {
  Extents extents;                  ///< extents of the value
  double factor = 1;                ///< all elements are multiplied by it
  const ir::Value* past = nullptr;  ///< an input of the graph; null: no element is from a cache
  const ir::Value* fresh = nullptr; ///< null: all elements are from the cache
  /// New rows are at [first, first + count) along `axis`; without a cache, all rows are new.
  unsigned axis = 0;
  int64_t first = 0;
  int64_t count = 0;
  /// Fit of the elements from `past`, with the axis from 0 on, and of those from `fresh`, with the
  /// axis from the first new row on.
  MovementFit ofPast;
  MovementFit ofFresh;
  Extents pastExtents;
  Extents freshExtents;

  bool isAppended() const { return past && fresh && first + count == extents[axis]; }
};

/// The cache whose elements `rows`, [B,H,T,D] as attention reads them, contains together with other
/// elements. Null if all elements are from inputs, or none is. One column of the first head is
/// read.
const ir::Value* joinedPast(const ir::Value& rows, Evaluation& evaluation);

/// Candidates for `CachedRows::fresh`: values that consist of exactly the new elements in `value`;
/// nearest to the blocks first.
std::vector<const ir::Value*> freshCandidates(const ir::Value& value, Evaluation& evaluation);

/// The rows of `value`, whose new ones are rows of `fresh` (null: it must have none). nullopt if an
/// element is from neither, or if elements are not arranged along axes.
std::optional<CachedRows> cachedRows(const ir::Value& value, const ir::Value* fresh,
                                     Evaluation& evaluation);

} // namespace kvopt::analysis
