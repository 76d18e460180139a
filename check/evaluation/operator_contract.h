// What operators require beyond what they compute.
#pragma once

#include "check/arithmetic/call.h"

namespace kvopt::check {

/// Why engines refuse the node although its function body or rule could be evaluated: an attribute
/// that the operator does not have or that is out of range, or operands that do not belong
/// together. Empty if they do not.
std::string contractViolation(const Call& call);

/// An operand or attribute of the node that its rule has not asked for, although it may change what
/// the node computes; empty if there is none. `call` is one that the rule has evaluated.
std::string unreadPart(const Call& call);

/// Whether an attribute, or an operand that is present, changes nothing that a rule computes
/// although the rule does not always ask for it.
bool isNeutral(const Call& call, llvm::StringRef attribute);
bool isNeutral(const Call& call, unsigned operand);

} // namespace kvopt::check
