// Names of extents that a file gives to extents that are not equal.
#pragma once

#include "ir/model.h"

#include "llvm/ADT/StringSet.h"

#include <string>
#include <vector>

namespace kvopt::extents {

/// The symbols in the shapes of a graph's inputs.
llvm::StringSet<> inputSymbols(const ir::Graph& graph);

/// A name for an extent of an input: `input_ids_dim_1`. `taken` gets it.
std::string extentName(const ir::Value& input, unsigned axis, llvm::StringSet<>& taken);

/// Gives extents of inputs that share a name different names where they cannot be equal in the
/// graph: the rows that a cache has and those that are appended to it are counted apart, and no
/// equation of extents may make one 0. Extents that may be equal keep their name.
///
/// Returns a sentence for each such name. Most models have none; then a few nodes were inferred,
/// and the model is as before.
std::vector<std::string> separateUnequalExtents(ir::Model& model);

} // namespace kvopt::extents
