// Checks that a manifest describes its graph.
#pragma once

#include "ir/manifest/manifest.h"

namespace kvopt::ir {

class Graph;

/// Checks that the inputs and outputs in the manifest exist and have the element types, ranks and
/// fixed extents that it declares, that the capacity is that of the caches, that scales belong to
/// codes that are stored in the same way, that the caches fit into memory, and that operators put
/// the new rows of a past into its present (checkOverwrittenPasts). The manifest may fix an extent
/// that is symbolic in the graph. The error names the input or output.
llvm::Error checkManifest(const Manifest& manifest, const Graph& graph);

} // namespace kvopt::ir
