// What ai.kvopt's attention operators require beyond their function bodies.
#pragma once

#include "check/arithmetic/call.h"

namespace kvopt::check {

/// An attribute of the call that is out of its documented range, for which nothing says what the
/// operator computes; empty if there is none.
std::string undocumentedAttribute(const Call& call);

/// Why the operator fails for operands that its function body accepts: blocks hold other numbers of
/// keys than of values. Empty if it does not fail.
std::string operandViolation(const Call& call);

} // namespace kvopt::check
