// CacheReaders: readers of a cache's rows after their update: attention, outputs, and readers of
// the extents.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/movement/axis_map.h"

#include "llvm/ADT/SmallPtrSet.h"

#include <optional>

namespace kvopt::analysis {

/// All readers of the result of an update.
struct CacheReaders {
  struct Output {
    ir::Value* value;
    std::optional<AxisMap> map;
    /// Number of last rows that the output holds, if not all rows of the sequence; 0 for other
    /// rows.
    std::optional<int64_t> lastRows;
  };
  const ir::Graph* graph = nullptr; ///< graph that contains the update
  llvm::SmallVector<Output, 2> outputs;
  llvm::SmallPtrSet<ir::Node*, 2> attentions;
  ir::Node* escape = nullptr; ///< reads the rows as data; other lists may be incomplete
  llvm::SmallVector<ir::Node*, 4> shapeReaders;
  llvm::SmallVector<ir::Node*, 4> movers; ///< move the rows to attention and to the output
};

/// Follows `updated`, whose axes are those of `map`, through nodes that only move data.
CacheReaders readersOfRows(ir::Value& updated, const AxisMap& map);

/// One of the updates' `shapeReaders` that uses the extents for more than the `movers` of any of
/// them; null if there is none. Readers in other graphs than the update's count as such.
ir::Node* foreignShapeReader(llvm::ArrayRef<const CacheReaders*> updates);

} // namespace kvopt::analysis
