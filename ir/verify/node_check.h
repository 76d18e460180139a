// Whether a node fits the definition of its operator.
#pragma once

#include "llvm/Support/Error.h"

namespace kvopt::ir {

class Node;

/// Checks the node against its operator's definition: the counts of operands and results, that no
/// required operand is absent, that required attributes are present, and that every attribute has
/// the defined kind. A node without a definition passes, and one that hasUnknownOperands may have
/// as many as it likes. The error does not name the node.
llvm::Error checkDefinition(const Node& node);

/// Checks that the bodies of If, Loop and Scan have the inputs and outputs that the node's operands
/// and results call for. The error does not name the node.
llvm::Error checkBodies(const Node& node);

} // namespace kvopt::ir
