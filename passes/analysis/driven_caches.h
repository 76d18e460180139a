// Caches as whoever drives a model sees them, whether or not their attention is recognised.
#pragma once

#include "ir/graph.h"
#include "ir/manifest.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt {

/// The extents of a cache by its input's type; what is symbolic there but fixed in the output is
/// fixed.
std::vector<ManifestExtent> manifestShape(const TensorType& past, const Value* present,
                                          unsigned sequenceAxis);

/// The graph inputs, apart from `known`, whose rows come out again in one output, in the inputs'
/// order: with more rows along one axis (a cache that grows), or, written over or shifted, with the
/// same extents (a cache of static capacity, a recurrent or convolution state).
std::vector<ManifestCache> cachesByDataFlow(const Graph& graph,
                                            const llvm::DenseSet<const Value*>& known);

} // namespace kvopt
