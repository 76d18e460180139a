// How the contents of constants spread along the axes of what is computed from them.
#pragma once

#include "check/arithmetic/call.h"

namespace kvopt::check {

/// Sets Tensor::isFixed and Tensor::tableAxes of a call's results, and notes what is hidden
/// (noteHidden).
void spreadTables(const Call& call, Results& results);

/// Notes which entries of tables a call reads where its other operands hide elements: zeros in a
/// product, infinities in a sum, conditions of a choice. Rules note what they select themselves.
void noteHidden(const Call& call);

/// The axis of an operand over which a product of matrices sums.
int64_t summedAxis(const Call& call, unsigned operand);

} // namespace kvopt::check
