// NumberBounds: bounds of the numbers of a tensor, at all sizes.
#pragma once

#include "ir/dims/dim.h"

#include "llvm/ADT/ArrayRef.h"

namespace kvopt::analysis {

/// Bounds of the elements of a tensor of numbers at all sizes.
struct NumberBounds {
  static constexpr double largest = 2147483646; ///< bound of an extent or an integer input

  double low = -largest;
  double high = largest;
  /// Sums of lengths that bound every element from below and above; unknown if there are none.
  ir::Dim least, most;
  /// Whether neither the extents nor the elements depend on the step.
  bool isFixed = false;
  bool isIntegral = false;

  bool isUniform() const { return low == high; }
  bool isIndicator() const { return isIntegral && low >= 0 && high <= 1; }
};

/// Bounds with sums of lengths if the numbers are integers.
NumberBounds between(double low, double high, bool isIntegral);

/// Uses sums of lengths as bounds where they are known and no number is.
void limitBy(NumberBounds& bounds, const ir::Dim& least, const ir::Dim& most);
/// Sets both sums of lengths if the bounds are lengths.
void setLimits(NumberBounds& bounds);

/// Bounds of the elements of all operands together.
NumberBounds unionOf(llvm::ArrayRef<NumberBounds> operands);
NumberBounds sumOf(const NumberBounds& one, const NumberBounds& other);
NumberBounds negativeOf(const NumberBounds& one);

} // namespace kvopt::analysis
