// Reasons why a cache that was found cannot be kept in place, in the model's terms.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/movement/axis_map.h"
#include "passes/pattern/reason.h"

#include "ir/node.h"

namespace kvopt::analysis {

/// Whether the value is an input of the model, not of a subgraph.
inline bool isModelInput(const ir::Value& value) {
  return value.isGraphInput() && !value.graph().parentNode();
}

/// Whether the node selects batch rows by indices that are not constant, as beam search does;
/// `after` describes the axes of its result.
bool isBatchReorder(const ir::Node& node, const AxisMap& after);
/// The same for a tensor whose batch rows can only be on axis 0.
bool isBatchReorder(const ir::Node& node);

/// The batch rows of a cache are reordered by `gather`.
pattern::MatchFailure reorderedCache(const ir::Node& gather);

/// Attention reads `read`, which is computed from the rows that `update` joined.
pattern::MatchFailure transformedCache(const ir::Value& read, const ir::Node& update);

/// `past` holds the caches of several layers, or of keys and values.
pattern::MatchFailure stackedCache(const ir::Value& past);

/// Number of axes that distinguish tensors stacked in one.
unsigned stackedAxes(const AxisMap& map);

/// Attention reads a Concat of other rows and a past, while another Concat produces the present of
/// that past: the keys do not include the rows of this step. `keys` are followed back through data
/// movement.
std::optional<pattern::MatchFailure> delayedCache(const ir::Value& keys);

} // namespace kvopt::analysis
