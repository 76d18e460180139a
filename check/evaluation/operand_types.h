// Element types of operands that an operator takes in one type only.
#pragma once

#include "check/arithmetic/tensor.h"
#include "ir/node.h"

#include <string>

namespace kvopt::check {

/// Why the node's operands are not of one type, where its operator takes one; empty if they are, or
/// if types are unknown. Engines refuse such a node, and its result is not defined.
std::string mixedTypes(const ir::Node& node, llvm::ArrayRef<Ref> operands);

} // namespace kvopt::check
