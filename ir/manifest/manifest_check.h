// Whether a manifest describes the graph that it comes with.
#pragma once

#include "ir/manifest/manifest.h"

namespace kvopt::ir {

class Graph;

/// Checks that the inputs and outputs that the manifest names exist and have the element types,
/// ranks and fixed extents that it says, that the capacity is that of the caches, that scales
/// belong to codes that are kept alike, and that the caches fit into memory. Where the graph leaves
/// an extent open, the manifest may fix it. The error names the input or output.
llvm::Error checkManifest(const Manifest& manifest, const Graph& graph);

} // namespace kvopt::ir
