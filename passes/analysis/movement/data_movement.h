// Operators that move data without computing: which they are, and what they do to an AxisMap.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/movement/axis_map.h"

namespace kvopt::analysis {

/// Whether the node's results hold elements of its first operand, rearranged, converted, repeated
/// or left out, and nothing else.
bool onlyMovesData(const ir::Node& node);

/// The map of the node's first operand, where `map` is that of `result`. nullopt where the node
/// moves data in a way that extents do not prove, or that a map cannot tell.
std::optional<AxisMap> mapBefore(const ir::Value& result, AxisMap map);

/// The map of the node's result, where `map` is that of its first operand; for operators that keep
/// every element: Transpose, Reshape, Squeeze, Unsqueeze, Flatten, Cast and Identity.
std::optional<AxisMap> mapAfter(const ir::Node& node, AxisMap map);

/// A Slice's or Split's range of one axis.
struct SlicedRange {
  unsigned axis = 0;
  int64_t start = 0; ///< negative: from the end, where the extent is not fixed
};

/// The single axis of which the node's `result` keeps a contiguous range; nullopt for other nodes,
/// several axes, and starts that are not constant.
std::optional<SlicedRange> slicedRange(const ir::Value& result);

} // namespace kvopt::analysis
