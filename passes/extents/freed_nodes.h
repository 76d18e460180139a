// Extents of a graph's nodes, once those of its inputs are symbols.
#pragma once

#include "passes/extents/extent_symbols.h"

namespace kvopt::extents {

/// Where a graph keeps what an export fixed.
struct Obstacle {
  const ir::Node* node = nullptr;
  std::string why;
};

/// Infers every node again, in order, after it has freed what the node says of extents by numbers.
/// The inputs have their symbols. What a node has then had the exported extents. The first
/// obstacle; nullopt if the whole graph was freed. Where several axes have extents of one, which of
/// them is meant may be guessed.
std::optional<Obstacle> freeNodes(ir::Graph& graph, ExtentSymbols& symbols);

} // namespace kvopt::extents
