// Handled: what a rule or a target takes into account of a node, so that the rest is refused.
#pragma once

#include "passes/pattern/reason.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace kvopt::ir {
class Node;
} // namespace kvopt::ir

namespace kvopt::pattern {

/// Names of an operator's attributes and operands, as its definition has them.
struct Handled {
  llvm::ArrayRef<llvm::StringLiteral> attributes;
  llvm::ArrayRef<llvm::StringLiteral> operands;
};

/// The refusal of the first attribute of `node` that is not among `handled`; nullopt if there is
/// none. An attribute is handled anyway when it has the value that the definition gives it where it
/// is not written. A function's attribute, whose value the call decides, is never handled, and
/// neither are operands and results that the operator has gained (`hasUnknownOperands`).
std::optional<MatchFailure> unhandledAttribute(const ir::Node& node,
                                               llvm::ArrayRef<llvm::StringLiteral> handled);

/// The same for attributes, and for the operands that are present. An operator that gains an
/// attribute or operand is so refused by everyone who has not learned of it.
std::optional<MatchFailure> unhandled(const ir::Node& node, const Handled& handled);

} // namespace kvopt::pattern
