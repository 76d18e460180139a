// MovementFit: the element of one tensor that each element of another equals, as sums of strides.
#pragma once

#include "passes/analysis/evaluation/extents.h"

#include <vector>

namespace kvopt::analysis {

/// A part of an axis: `extent` indices, which are `stride` elements of the source apart. Stride 0
/// repeats the source.
struct AxisFactor {
  int64_t extent = 1;
  int64_t stride = 0;

  bool operator==(const AxisFactor&) const = default;
};

/// Element [x0 … xn] is element `offset` plus the contributions of the axes. An axis is cut into
/// factors, outermost first, and contributes the sum of index times stride over its factors.
/// Factors of extent 1 are left out.
struct MovementFit {
  int64_t offset = 0;
  std::vector<llvm::SmallVector<AxisFactor, 2>> axes;
};

/// The fit of a tensor whose element i, in row-major order, is element sources[i] of the source.
/// nullopt if the sum does not yield every element. Requires at least one element.
std::optional<MovementFit> fitMovement(llvm::ArrayRef<int64_t> extents,
                                       llvm::ArrayRef<int64_t> sources);

/// Cuts one axis in both fits wherever either is cut; false if that is not possible.
bool cutAlike(llvm::SmallVector<AxisFactor, 2>& one, llvm::SmallVector<AxisFactor, 2>& other);

} // namespace kvopt::analysis
