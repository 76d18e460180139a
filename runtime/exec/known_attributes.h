// Nodes may say more than their operator's definition knows.
#pragma once

#include "ir/graph.h"

#include "llvm/Support/Error.h"

namespace kvopt::runtime {

/// An Unsupported error that names the first attribute of the node that its operator's definition
/// does not have, or says that it has more operands or results than the definition: what they mean
/// is unknown, so that the operator cannot be executed without them. Success where there are none,
/// and for operators without a definition.
llvm::Error checkKnownAttributes(const ir::Node& node);

} // namespace kvopt::runtime
