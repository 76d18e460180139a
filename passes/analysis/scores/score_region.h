// ScoreRegion: the nodes between the two matrix products around a softmax.
#pragma once

#include "ir/graph.h"

#include <optional>

namespace kvopt::analysis {

/// Whether the node gives operand 0 another shape and keeps the order of its elements.
bool isReshaping(const ir::Node& node);

/// Scores = MatMul(q, k), then elementwise operators, changes of shape and one softmax, then
/// MatMul(probabilities, v).
struct ScoreRegion {
  ir::Node* scores;
  ir::Node* softmax;
  ir::Node* context; ///< reads the probabilities as its operand 0
  /// Nodes on a path from `scores` to `context`, `softmax` included, in execution order.
  llvm::SmallVector<ir::Node*, 16> inner;
};

/// The region that ends in the matrix product `context`; nullopt if there is no softmax or first
/// product within a fixed number of nodes, or if the choice is ambiguous.
std::optional<ScoreRegion> scoreRegion(ir::Node& context);

} // namespace kvopt::analysis
