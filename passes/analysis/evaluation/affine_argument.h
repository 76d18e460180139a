// The argument that what was found at a few sizes holds at all sizes.
#pragma once

#include "passes/analysis/evaluation/breakpoints.h"
#include "passes/analysis/evaluation/step_evaluations.h"

namespace kvopt::analysis {

/// Whether the places of elements follow from piecewise affine functions that were tried on every
/// piece. A fact that is affine, too, and that was found at all tried points is then a fact of all
/// sizes.
///
/// Assumed, next to what Evaluation assumes: integer inputs hold no negative numbers, extents are
/// below 2^31, and at each tried size there are enough elements to tell two affine functions apart.
struct AffineArgument {
  /// Where the argument ends; nullopt where it holds.
  std::optional<ArgumentBreak> broken;
  /// Whether what is beyond that may be chosen by size, so that other sizes may have other
  /// elements.
  bool maySwitch = false;

  bool holds() const { return !broken.has_value(); }
};

/// The argument for the elements of `value`, which are elements of `sources` and of other blocks;
/// sources that are null are left out.
/// It walks all operators that decide which ones: those that move or choose elements, up to the
/// sources, and those that compute numbers from extents, constants and integer inputs.
///
/// Sums, differences, products with constants, ranges, shapes and movements of numbers are affine.
/// Comparisons, Where, Min, Max, Clip, the bounds of slices, and Mod and Div by constants have
/// breakpoints: the sizes and checkingPoints() of `evaluations` have to lie on all their sides. Of
/// Mod and Div by a constant, two quotients have to be among them. Any other operator breaks the
/// argument, and so do products of two lengths and table look-ups by a length.
///
/// Constants that lengths are compared with add checking points: facts are checked afterwards.
AffineArgument affineArgument(const ir::Value& value, llvm::ArrayRef<const ir::Value*> sources,
                              StepEvaluations& evaluations);

} // namespace kvopt::analysis
