// Edits that remove from a model what identifies its origin.
#pragma once

#include "ir/model.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Removes doc strings, metadata, names of nodes, graphs and the producer, and everything else that
/// kvopt does not interpret.
bool removeRemarks(ir::Model& model);

/// Names of all values of the main graph.
std::vector<std::string> valueNames(const ir::Graph& graph);
/// Gives the values names without a meaning: "i0" for inputs, "w0" for initializers, "v0" for
/// others. False if they have such names already.
bool renameValues(ir::Graph& graph, llvm::ArrayRef<std::string> names);

/// Gives symbols of extents names without a meaning: "n0", "n1". False if they have such names
/// already.
bool renameSymbols(ir::Model& model);

} // namespace kvopt::driver
