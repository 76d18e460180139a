// Why a cache that was found cannot be kept in place, in the words of the model.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/movement/axis_map.h"
#include "passes/pattern/reason.h"

#include "ir/node.h"

namespace kvopt::analysis {

/// An input of the model, not of a subgraph.
inline bool isModelInput(const ir::Value& value) {
  return value.isGraphInput() && !value.graph().parentNode();
}

/// Whether the node picks batch rows by indices that are not constant, as beam search does; `after`
/// says what lies along the axes of its result.
bool isBatchReorder(const ir::Node& node, const AxisMap& after);
/// The same for a tensor of which only the batch rows can be picked so: those of axis 0.
bool isBatchReorder(const ir::Node& node);

/// The batch rows of a cache are reordered by `gather`.
pattern::MatchFailure reorderedCache(const ir::Node& gather);

/// Attention reads `read`, which is computed from the rows that `update` joined.
pattern::MatchFailure transformedCache(const ir::Value& read, const ir::Node& update);

/// `past` holds the caches of several layers, or of keys and values.
pattern::MatchFailure stackedCache(const ir::Value& past);

/// How many axes distinguish tensors in one.
unsigned stackedAxes(const AxisMap& map);

/// Attention reads what a Concat makes of other rows and a past, while another Concat makes the
/// present of that past: the rows of this step are not among the keys. `keys` are followed back
/// through data movement.
std::optional<pattern::MatchFailure> delayedCache(const ir::Value& keys);

} // namespace kvopt::analysis
