// Operands and results that a node may leave out, for code that cannot do without them.
#pragma once

#include "ir/node.h"

#include "llvm/Support/Error.h"

namespace kvopt::ir {

/// The operand, or an error that names the node and the operand if the node leaves it out.
llvm::Expected<Value*> requiredOperand(const Node& node, unsigned index);

/// The result, or an error that names the node and the result if the node leaves it out.
llvm::Expected<Value*> requiredResult(Node& node, unsigned index);

} // namespace kvopt::ir
