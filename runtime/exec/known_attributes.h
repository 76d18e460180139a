// Detection of attributes and operands that an operator's definition does not have.
#pragma once

#include "ir/graph.h"

#include "llvm/Support/Error.h"

namespace kvopt::runtime {

/// An Unsupported error that names the node's first attribute without definition, or reports
/// operands or results beyond the definition. Their meaning is unknown, so the operator cannot be
/// executed correctly. Success if there are none, and for operators without a definition.
llvm::Error checkKnownAttributes(const ir::Node& node);

} // namespace kvopt::runtime
