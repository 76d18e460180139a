// AttentionAtoms: the extents whose products are the axes of an attention's values.
#pragma once

#include "passes/analysis/scores/score_region.h"

namespace kvopt::analysis {

/// The axes of the scores [B,H,S,T] in their smallest parts, in row-major order: one for the batch,
/// one or more for the heads, one or more for the queries, one for the keys. The axes of a value of
/// another shape (flattened to [B*H,S,T], grouped as [B,G,N,S,T]) are products of consecutive
/// parts.
struct AttentionAtoms {
  llvm::SmallVector<ir::Dim, 6> extents;
  unsigned headAtoms = 1;

  enum Axis { Batch, Heads, Queries, Keys, axisCount };
  /// The half-open range of the parts of an axis of [B,H,S,T].
  std::pair<unsigned, unsigned> partsOf(Axis axis) const;
  /// Axis that a part belongs to.
  Axis axisOf(unsigned part) const;
  ir::Dim extentOf(Axis axis) const;
  llvm::ArrayRef<ir::Dim> batchParts() const {
    return llvm::ArrayRef<ir::Dim>(extents).take_front(1 + headAtoms);
  }
};

/// For each axis of a shape, its factors, which are parts; parts of extent one may be missing.
using AtomView = llvm::SmallVector<llvm::SmallVector<unsigned, 3>, 6>;

/// nullopt if the axes are not known to be products of consecutive parts, or if a part is left
/// over.
std::optional<AtomView> viewOf(llvm::ArrayRef<ir::Dim> shape, llvm::ArrayRef<ir::Dim> parts);

/// The parts of a region whose matrix products have a rank other than four; nullopt if extents are
/// unknown, and for rank four.
std::optional<AttentionAtoms> atomsOf(const ScoreRegion& region);

} // namespace kvopt::analysis
