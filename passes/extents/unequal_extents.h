// Extents that share a name in the file although they are not equal.
#pragma once

#include "ir/model.h"

#include "llvm/ADT/StringSet.h"

#include <string>
#include <vector>

namespace kvopt::extents {

/// Symbols in the shapes of a graph's inputs.
llvm::StringSet<> inputSymbols(const ir::Graph& graph);

/// A name for an extent of an input: `input_ids_dim_1`. It is added to `taken`.
std::string extentName(const ir::Value& input, unsigned axis, llvm::StringSet<>& taken);

/// Renames extents of inputs that share a name and cannot be equal in the graph: the rows of a
/// cache and the rows that are appended to it are counted separately, and no equation of extents
/// may make one 0. Extents that may be equal keep their name.
///
/// Returns a sentence for each such name. Most models have none; then only a few nodes were
/// inferred, and the model is unchanged.
std::vector<std::string> separateUnequalExtents(ir::Model& model);

} // namespace kvopt::extents
