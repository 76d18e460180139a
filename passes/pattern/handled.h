// Handled: the attributes and operands that a rule or a target takes into account. All others are
// refused.
#pragma once

#include "passes/pattern/reason.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace kvopt::ir {
class Node;
} // namespace kvopt::ir

namespace kvopt::pattern {

/// Names of an operator's attributes and operands, as its definition spells them.
struct Handled {
  llvm::ArrayRef<llvm::StringLiteral> attributes;
  llvm::ArrayRef<llvm::StringLiteral> operands;
};

/// Refusal of the first attribute of `node` that is not in `handled`; nullopt if there is none. An
/// attribute with its default value always counts as handled. Two things never do: a function's
/// attribute whose value the call decides, and operands and results that the operator has gained
/// (`hasUnknownOperands`).
std::optional<MatchFailure> unhandledAttribute(const ir::Node& node,
                                               llvm::ArrayRef<llvm::StringLiteral> handled);

/// The same check for attributes and for the operands that are present. If an operator gains an
/// attribute or operand in a later version, every rule refuses it until it is handled.
std::optional<MatchFailure> unhandled(const ir::Node& node, const Handled& handled);

} // namespace kvopt::pattern
