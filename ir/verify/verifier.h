// Verifier: invariants of every graph between passes.
#pragma once

#include "ir/model.h"

namespace kvopt::ir {

/// Checks that operands are defined before they are read and are visible to the reader; that names
/// are unique and hide no others; that the numbers of operands and results, the required attributes
/// and the kinds of attributes match the operator's definition; and that use lists are consistent.
/// Aliasing: if a node overwrites an operand in place (Alias::InPlace), neither its other operands
/// nor any later node may read that value. The value must be in the node's own graph and must not
/// be a graph output or a constant, and no second node may overwrite it. The same holds for every
/// value that shares the operand's storage as a view (Alias::View). The error names the node and
/// value.
llvm::Error verify(const Graph& graph);
llvm::Error verify(const Model& model);

} // namespace kvopt::ir
