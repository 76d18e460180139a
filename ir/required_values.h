// Access to optional operands and results by code that requires them.
#pragma once

#include "ir/node.h"

#include "llvm/Support/Error.h"

namespace kvopt::ir {

/// The operand; if it is absent, an error that names the node and the operand.
llvm::Expected<Value*> requiredOperand(const Node& node, unsigned index);

/// The result; if it is absent, an error that names the node and the result.
llvm::Expected<Value*> requiredResult(Node& node, unsigned index);

} // namespace kvopt::ir
