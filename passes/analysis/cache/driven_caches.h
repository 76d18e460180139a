// Caches from the view of a program that drives the model, whether or not their attention is
// recognized.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt::analysis {

/// Extents of a cache from the type of its input; extents that are symbolic there but fixed in the
/// output are fixed.
std::vector<ir::ManifestExtent> manifestShape(const ir::TensorType& past, const ir::Value* present,
                                              unsigned sequenceAxis);

/// Whether an operator that overwrites rows wraps around to the first of `rows` rows after the
/// last: TensorScatter in circular mode, or indices modulo that number.
bool wrapsAround(const ir::Node& update, const ir::Dim& rows);

/// Graph inputs, except `known`, whose rows are returned in one output, in the inputs' order: with
/// more rows along one axis (a growing cache) or, overwritten, with the same extents (a static
/// cache). They are followed by the recurrent and convolution states (`statesByDataFlow`). Outputs
/// in `knownOutputs` belong to other caches.
std::vector<ir::ManifestCache>
cachesByDataFlow(const ir::Graph& graph, const llvm::DenseSet<const ir::Value*>& known,
                 const llvm::DenseSet<const ir::Value*>& knownOutputs = {});

} // namespace kvopt::analysis
