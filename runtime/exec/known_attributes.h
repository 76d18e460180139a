// Nodes may say more than their operator's definition knows.
#pragma once

#include "ir/graph.h"

#include "llvm/Support/Error.h"

namespace kvopt::runtime {

/// An Unsupported error that names the first attribute of the node that its operator's definition
/// does not have: what it means is unknown, so that the operator cannot be executed without it.
/// Success where there is none, and for operators without a definition.
llvm::Error checkKnownAttributes(const ir::Node& node);

} // namespace kvopt::runtime
