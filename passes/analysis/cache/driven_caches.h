// Caches as whoever drives a model sees them, whether or not their attention is recognized.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt::analysis {

/// The extents of a cache by its input's type; what is symbolic there but fixed in the output is
/// fixed.
std::vector<ir::ManifestExtent> manifestShape(const ir::TensorType& past, const ir::Value* present,
                                              unsigned sequenceAxis);

/// Whether an operator that writes rows over others comes back to the first of `rows` rows after
/// the last: TensorScatter in circular mode, or indices that are remainders by that number.
bool wrapsAround(const ir::Node& update, const ir::Dim& rows);

/// The graph inputs, apart from `known`, whose rows come out again in one output, in the inputs'
/// order: with more rows along one axis (a cache that grows) or, written over, with the same
/// extents (a cache of static capacity). After them the recurrent and convolution states
/// (`statesByDataFlow`). Outputs in `knownOutputs` belong to other caches.
std::vector<ir::ManifestCache>
cachesByDataFlow(const ir::Graph& graph, const llvm::DenseSet<const ir::Value*>& known,
                 const llvm::DenseSet<const ir::Value*>& knownOutputs = {});

} // namespace kvopt::analysis
