// NumberBounds: between what the numbers of a tensor lie, at all sizes.
#pragma once

#include "ir/dims/dim.h"

#include "llvm/ADT/ArrayRef.h"

namespace kvopt::analysis {

/// What is known of the elements of a tensor of numbers at all sizes.
struct NumberBounds {
  static constexpr double largest = 2147483646; ///< of an extent or an integer input

  double low = -largest;
  double high = largest;
  /// Sums of lengths that no element is below and above; unknown where there are none.
  ir::Dim least, most;
  /// Neither the extents nor the elements depend on the step.
  bool isFixed = false;
  bool isIntegral = false;

  bool isUniform() const { return low == high; }
  bool isIndicator() const { return isIntegral && low >= 0 && high <= 1; }
};

/// With sums of lengths where the numbers are whole ones.
NumberBounds between(double low, double high, bool isIntegral);

/// Takes sums of lengths as bounds, where those are known and no number is.
void limitBy(NumberBounds& bounds, const ir::Dim& least, const ir::Dim& most);
/// Sets both sums of lengths that are numbers.
void setLimits(NumberBounds& bounds);

/// The bounds of elements of any of these.
NumberBounds unionOf(llvm::ArrayRef<NumberBounds> operands);
NumberBounds sumOf(const NumberBounds& one, const NumberBounds& other);
NumberBounds negativeOf(const NumberBounds& one);

} // namespace kvopt::analysis
