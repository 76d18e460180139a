// What operators that move data without computing do to an AxisMap.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/movement/axis_map.h"

namespace kvopt::analysis {

/// Whether a conversion keeps every number that the first type holds, codes of eight bits included.
bool keepsNumbers(ir::ElementType from, ir::ElementType to);

/// Whether the node's results hold elements of its moved operand, rearranged, converted without
/// loss, repeated or left out, and nothing else.
bool onlyMovesData(const ir::Node& node);

/// Whether all elements come from one input of the model, only moved.
bool isMovedFromInput(const ir::Value& value);

/// The map of the node's moved operand, where `map` is that of `result`. nullopt where the node
/// moves data in a way that extents do not prove, or that a map cannot tell.
std::optional<AxisMap> mapBefore(const ir::Value& result, AxisMap map);

/// The map of the node's result, where `map` is that of its moved operand; nullopt where the
/// operator does not keep every element once.
std::optional<AxisMap> mapAfter(const ir::Node& node, AxisMap map);

/// A range of one axis.
struct SlicedRange {
  unsigned axis = 0;
  int64_t start = 0;  ///< negative: from the end, where the extent is not fixed
  bool toEnd = false; ///< provably up to the last element
};

/// The single axis of which the node's `result` keeps a contiguous range; nullopt for other nodes,
/// several axes, and starts that are not constant.
std::optional<SlicedRange> slicedRange(const ir::Value& result);

} // namespace kvopt::analysis
