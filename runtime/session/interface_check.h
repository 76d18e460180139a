// Checks that a manifest fits the model that it describes.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"

namespace kvopt::runtime {

/// An error if sessions do not support the manifest's way to drive the model, or if the manifest
/// names caches, blocks or lengths that do not match the graph. Caches that are only read are not
/// checked, because their caller provides them.
llvm::Error checkInterface(const ir::Graph& graph, const ir::Manifest& manifest);

} // namespace kvopt::runtime
