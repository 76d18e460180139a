// Functions that the rules of elementwise operators share.
#pragma once

#include "check/arithmetic/call.h"

namespace kvopt::check {

using IntegerFunction = int64_t (*)(int64_t, int64_t);
using NumberFunction = double (*)(double, double);

/// A known number as its element type stores it.
double stored(double value, ir::ElementType type);

/// Elements of two integer or two known tensors combined; null if the kinds differ.
Ref combined(const Ref& a, const Ref& b, IntegerFunction ofIntegers, NumberFunction ofNumbers,
             bool isTruth = false);

/// Whether all operands are integers or known numbers that are not weights.
bool areKnown(Call& call);

/// The result; without one, the model fails if the operands do not broadcast to each other.
Results need(Call& call, Ref result);

/// A float32 tensor [] with a known number.
Ref knownScalar(double value);

} // namespace kvopt::check
