// Effects of operators that only move data on an AxisMap.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/movement/axis_map.h"

namespace kvopt::analysis {

/// Whether a conversion preserves every number that the first type holds; codes of eight bits
/// count.
bool keepsNumbers(ir::ElementType from, ir::ElementType to);

/// Whether the node's results consist only of elements of its moved operand: rearranged, converted
/// without loss, repeated or left out.
bool onlyMovesData(const ir::Node& node);

/// Whether all elements come from one input of the model through data movement.
bool isMovedFromInput(const ir::Value& value);

/// Map of the node's moved operand, given the map of `result`. nullopt if extents do not prove the
/// movement, or a map cannot express it.
std::optional<AxisMap> mapBefore(const ir::Value& result, AxisMap map);

/// Map of the node's result, given the map of its moved operand; nullopt unless the operator keeps
/// every element exactly once.
std::optional<AxisMap> mapAfter(const ir::Node& node, AxisMap map);

/// A range of one axis.
struct SlicedRange {
  unsigned axis = 0;
  int64_t start = 0;  ///< negative: from the end, if the extent is not fixed
  bool toEnd = false; ///< provably up to the last element
};

/// The single axis whose contiguous range the node's `result` keeps; nullopt for other nodes, for
/// several axes, and if the start is not constant.
std::optional<SlicedRange> slicedRange(const ir::Value& result);

} // namespace kvopt::analysis
