// The argument that a fact found at a few sizes holds at all sizes.
#pragma once

#include "passes/analysis/evaluation/breakpoints.h"
#include "passes/analysis/evaluation/step_evaluations.h"

namespace kvopt::analysis {

/// Whether the positions of elements follow from piecewise affine functions that were tried on
/// every piece. Then an affine fact that was found at all tried points holds at all sizes.
///
/// Assumptions, in addition to those of Evaluation: integer inputs are not negative, extents are
/// below 2^31, and each tried size has enough elements to distinguish two affine functions.
struct AffineArgument {
  /// The first gap in the argument; nullopt if it holds.
  std::optional<ArgumentBreak> broken;
  /// Whether a choice by size may depend on the operators after that gap, so that other sizes may
  /// have other elements.
  bool maySwitch = false;

  bool holds() const { return !broken.has_value(); }
};

/// The argument for the elements of `value`, which are elements of `sources` and of other blocks;
/// null sources are ignored. It walks all operators that select the elements: those that move or
/// choose elements, up to the sources, and those that compute numbers from extents, constants and
/// integer inputs.
///
/// Sums, differences, products with constants, ranges, shapes and movements of numbers are affine.
/// Comparisons, Where, Min, Max, Clip, the bounds of slices, and Mod and Div by constants have
/// breakpoints: the sizes and checkingPoints() of `evaluations` must be on all their sides. For Mod
/// and Div by a constant, they must include two quotients. Any other operator breaks the argument,
/// as do products of two lengths and table look-ups by a length.
///
/// Constants that lengths are compared with add checking points, so facts are checked afterwards.
AffineArgument affineArgument(const ir::Value& value, llvm::ArrayRef<const ir::Value*> sources,
                              StepEvaluations& evaluations);

} // namespace kvopt::analysis
