// Ranges of integer types, and what becomes of integers beyond them.
#pragma once

#include "check/arithmetic/tensor.h"

namespace kvopt::check {

/// Whether an integer type holds the whole number. Numbers near the ends of 64 bits do not count.
bool holds(ir::ElementType type, double number);

/// The tensor as its element type stores it: integers of fewer than 64 bits wrap around, as in
/// machines. Unsigned integers of 64 bits beyond the signed ones become open.
Ref wrappedToType(Ref tensor);

} // namespace kvopt::check
