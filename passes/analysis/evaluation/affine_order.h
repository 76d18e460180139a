// Which of two numbers can be greater, at all sizes.
#pragma once

#include "passes/analysis/evaluation/affine_numbers.h"

namespace kvopt::analysis {

/// Whether a polynomial is a number plus multiples of symbols.
bool isAffine(const ir::Dim& dim);

/// A polynomial that is at least as large as both at all sizes, and one that is at most as large as
/// both; unknown if either is not affine.
ir::Dim greatestOf(const ir::Dim& one, const ir::Dim& other);
ir::Dim leastOf(const ir::Dim& one, const ir::Dim& other);

/// Possible comparison results of elements of two operands.
struct Ordering {
  bool less = true;
  bool equal = true;
  bool greater = true;
  std::optional<ir::Dim> difference; ///< first - second, for single known numbers

  /// The breakpoint at which the first number becomes greater than the second, for an operator that
  /// computes the same on both sides where the numbers are equal.
  Breakpoint breakpoint(const ir::Node& node, const ir::Value& first, const ir::Value& second,
                        const char* whenLess, const char* whenGreater) const;
};

Ordering orderingOf(const ir::Value& first, const NumberBounds& ofFirst, const ir::Value& second,
                    const NumberBounds& ofSecond);

} // namespace kvopt::analysis
