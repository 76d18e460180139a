// Extents of a graph's nodes after those of its inputs have become symbols.
#pragma once

#include "passes/extents/extent_symbols.h"

namespace kvopt::extents {

/// A node that keeps an exported extent.
struct Obstacle {
  const ir::Node* node = nullptr;
  std::string why;
};

/// Infers every node again, in order, after replacing the numbers that represent extents in the
/// node. The inputs have their symbols; all other values still have the exported extents. Returns
/// the first obstacle; nullopt if the whole graph was freed. If several axes have the extent 1, the
/// choice between them may be a guess.
std::optional<Obstacle> freeNodes(ir::Graph& graph, ExtentSymbols& symbols);

} // namespace kvopt::extents
