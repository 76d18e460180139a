// What operators require beyond what they compute.
#pragma once

#include "check/arithmetic/call.h"

namespace kvopt::check {

/// Why engines refuse the node although its function body or rule could be evaluated: an attribute
/// that the operator does not have or that is out of range, or operands that do not belong
/// together. Empty if they do not.
std::string contractViolation(const Call& call);

} // namespace kvopt::check
