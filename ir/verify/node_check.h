// Checks that a node fits the definition of its operator.
#pragma once

#include "llvm/Support/Error.h"

namespace kvopt::ir {

class Node;

/// Checks the node against its operator's definition: the numbers of operands and results, the
/// presence of required operands and attributes, and the kind of every attribute. A node without a
/// definition passes. A node that hasUnknownOperands may have any number of them. The error does
/// not name the node.
llvm::Error checkDefinition(const Node& node);

/// Checks that the bodies of If, Loop and Scan have the inputs and outputs that the node's operands
/// and results require. The error does not name the node.
llvm::Error checkBodies(const Node& node);

} // namespace kvopt::ir
