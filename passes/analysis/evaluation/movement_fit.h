// MovementFit: which element of one tensor each element of another is, as sums of strides.
#pragma once

#include "passes/analysis/evaluation/extents.h"

#include <vector>

namespace kvopt::analysis {

/// A part of an axis: `extent` indices, each `stride` elements of the source apart. Stride 0: the
/// source is repeated.
struct AxisFactor {
  int64_t extent = 1;
  int64_t stride = 0;

  bool operator==(const AxisFactor&) const = default;
};

/// Element [x0 … xn] is element `offset` + the sum of what each axis adds. An axis is cut into
/// factors, outermost first, and adds the sum of index times stride of each. Factors of extent 1
/// are left out.
struct MovementFit {
  int64_t offset = 0;
  std::vector<llvm::SmallVector<AxisFactor, 2>> axes;
};

/// The fit of a tensor whose element i, in row-major order, is element sources[i] of the source.
/// nullopt where some element is another one than the sum says. Requires at least one element.
std::optional<MovementFit> fitMovement(llvm::ArrayRef<int64_t> extents,
                                       llvm::ArrayRef<int64_t> sources);

/// The same axis in both, cut where either of the two is cut; false where they cannot be cut alike.
bool cutAlike(llvm::SmallVector<AxisFactor, 2>& one, llvm::SmallVector<AxisFactor, 2>& other);

} // namespace kvopt::analysis
