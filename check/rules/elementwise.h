// Functions that the rules of elementwise operators share.
#pragma once

#include "check/arithmetic/call.h"

#include <algorithm>

namespace kvopt::check {

using IntegerFunction = int64_t (*)(int64_t, int64_t);
using NumberFunction = double (*)(double, double);

/// A known number as its element type stores it.
double stored(double value, ir::ElementType type);

/// The larger or smaller number; NaN if one of them is.
inline double boundOf(double a, double b, bool isUpper) {
  if (a != a || b != b)
    return a != a ? a : b;
  return isUpper ? std::max(a, b) : std::min(a, b);
}

/// How the growth of a combined element follows from those of both operands.
enum class Tracing {
  None, ///< it is not traced
  Sum,
  Difference,
  Product,
  Quotient,
  Remainder,          ///< with the sign of the divisor
  TruncatedRemainder, ///< with the sign of the dividend
  Upper,              ///< the larger one
  Lower,
  Truth, ///< a truth value, whose thresholds are noted
};

/// Elements of two integer or two known tensors combined; null if the kinds differ.
Ref combined(Call& call, const Ref& a, const Ref& b, Tracing tracing, IntegerFunction ofIntegers,
             NumberFunction ofNumbers);

/// A tensor of known numbers or integers whose elements are functions of one operand's elements,
/// with growths that `trace` gives, which is called once for equal growths in a row.
void traceEach(Call& call, const Tensor& operand, Tensor& result,
               llvm::function_ref<GrowthId(Growths::Number)> trace);

/// The growths of a function of sizes that is not traced.
void untraceAll(Call& call, const Tensor& operand, Tensor& result);

/// The growths of a rounding of known numbers, whose steps are noted.
void traceRounding(Call& call, const Tensor& operand, Tensor& result);

/// Whether the growth of a known number is not traced, but its value in the fields would be.
bool isBetterReal(Call& call, const Ref& result);

/// Whether all operands are integers or known numbers that are not weights.
bool areKnown(Call& call);

/// The result; without one, the model fails if the operands do not broadcast to each other.
Results need(Call& call, Ref result);

/// A float32 tensor [] with a known number.
Ref knownScalar(double value);

} // namespace kvopt::check
