// CacheReaders: what reads the rows of a cache after their update: attention, outputs, and readers
// of the extents.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/movement/axis_map.h"

#include "llvm/ADT/SmallPtrSet.h"

#include <optional>

namespace kvopt::analysis {

/// Everything that reads what an update made.
struct CacheReaders {
  struct Output {
    ir::Value* value;
    std::optional<AxisMap> map;
    /// Not all rows of the sequence, but the last so many of them; 0: some others.
    std::optional<int64_t> lastRows;
  };
  const ir::Graph* graph = nullptr; ///< in which the update stands
  llvm::SmallVector<Output, 2> outputs;
  llvm::SmallPtrSet<ir::Node*, 2> attentions;
  ir::Node* escape = nullptr; ///< one that reads it as data; the others may then not be complete
  llvm::SmallVector<ir::Node*, 4> shapeReaders;
  llvm::SmallVector<ir::Node*, 4> movers; ///< that carry it to its attention and its output
};

/// Follows `updated`, whose axes are those of `map`, through nodes that only move data.
CacheReaders readersOfRows(ir::Value& updated, const AxisMap& map);

/// One of the updates' `shapeReaders` that uses the extents for more than the `movers` of any of
/// them; null if there is none. Readers in other graphs than the update's do.
ir::Node* foreignShapeReader(llvm::ArrayRef<const CacheReaders*> updates);

} // namespace kvopt::analysis
