// Whether a manifest fits the model that it describes.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"

namespace kvopt::runtime {

/// An error where the manifest has a contract that sessions do not drive, or names caches, blocks
/// or lengths that the graph does not take as the manifest says. Caches that are only read are not
/// checked: their caller gives them.
llvm::Error checkInterface(const ir::Graph& graph, const ir::Manifest& manifest);

} // namespace kvopt::runtime
