// The verifier: what every graph must satisfy at every instant between passes.
#pragma once

#include "ir/model.h"

namespace kvopt::ir {

/// Operands are defined before they are read and visible from the reader; names are unique and hide
/// nothing; counts of operands and results, required attributes and the kinds of attributes are
/// those of the operator's definition; use lists are consistent. Aliasing: when a node overwrites
/// an operand in place (Alias::InPlace), neither it through another operand nor any node after it
/// may read that operand, the operand is of the node's own graph, no graph output and no constant,
/// and no second node overwrites it. The same holds for every value that shares the operand's
/// storage as a view (Alias::View). The error names node and value.
llvm::Error verify(const Graph& graph);
llvm::Error verify(const Model& model);

} // namespace kvopt::ir
