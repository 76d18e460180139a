// The manifest of a model in which only some attention layers are rewritten.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"
#include "passes/analysis/cache/cache_history.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::targets {

/// Manifests of a run that recovered all attention of a model. In a second run, the layers that are
/// not rewritten keep their original spelling, and only data flow shows their caches.
struct WholeRecovery {
  ir::Manifest exported; ///< manifest before the rewrite
  ir::Manifest lowered;  ///< manifest after it
  /// Caches that held rows in another form in that run, by their inputs (CacheHistory).
  llvm::StringSet<> attendedPasts;
};

/// Describes the caches of the second run as the first one knew them: roles, layers, windows,
/// readers and rotations, and caches that data flow does not show because the model only reads
/// them. `graph` is the result of the second run, and `history` what it changed. `rewritten` has
/// the inputs of the caches of rewritten layers.
void completeManifest(const WholeRecovery& whole, const analysis::CacheHistory& history,
                      const ir::Graph& graph, const llvm::StringSet<>& rewritten,
                      ir::Manifest& manifest);

} // namespace kvopt::targets
