// AxisMap: what lies along each axis of a tensor that holds keys or values, followed through
// operators that only move data.
#pragma once

#include "ir/cache_layout.h"
#include "ir/type.h"

namespace kvopt::analysis {

/// A part of one logical axis of keys or values [B,H,S,D]: 'B', 'H', 'S' (the sequence), 'D', or
/// '*' for an axis of several tensors in one, of which one is taken.
struct AxisPart {
  char role = '*';
  ir::Dim extent;
  /// The product of the extents of all less significant parts of the same logical axis.
  ir::Dim stride = ir::Dim::fixed(1);
};

/// For each axis of a tensor the parts that lie along it, most significant first; none where the
/// extent is 1. All steps fail (false, and the map is to be thrown away) where extents do not prove
/// what happens.
class AxisMap {
public:
  using Parts = llvm::SmallVector<AxisPart, 2>;

  /// Of keys or values as attention reads them; nullopt unless the rank is 4.
  static std::optional<AxisMap> ofAttentionOperand(const ir::TensorType& type);

  unsigned rank() const { return axes.size(); }
  const Parts& axis(unsigned index) const { return axes[index]; }
  /// The axis along which the sequence, whole and alone, lies.
  std::optional<unsigned> sequenceAxis() const;
  /// Requires sequenceAxis().
  const ir::Dim& sequenceExtent() const;
  void setSequenceExtent(const ir::Dim& extent);

  /// Axis i of the result is axis `order[i]` of this.
  AxisMap permuted(llvm::ArrayRef<unsigned> order) const;
  AxisMap permutedBack(llvm::ArrayRef<unsigned> order) const;
  /// Merges and splits axes in row-major order; splits of the sequence fail.
  bool reshape(llvm::ArrayRef<ir::Dim> shape);
  void insertAxis(unsigned position);
  /// Fails if anything but a single head or batch row lies along it.
  bool removeAxis(unsigned position);
  /// The tensor before it was repeated along `axis`: what lies there were repeated heads.
  bool undoRepeat(unsigned axis);
  /// The tensor before `[start, start + extent)` of an axis of extent `whole` was taken.
  bool undoSlice(unsigned axis, int64_t start, const ir::Dim& whole);

  /// How often each head was repeated for the heads of a group.
  const ir::Dim& repeats() const { return headRepeats; }
  /// The first column (of D) that was taken.
  int64_t firstColumn() const { return columnOffset; }
  /// Which of the tensors along an axis '*' was taken.
  int64_t selected() const { return selection; }
  bool isWindow() const { return windowed; }

  /// An axis of extent 1 gets the letter of a missing B or H. A layout that cannot be told where
  /// strides of repeated heads are not consistent.
  ir::CacheLayout layout() const;

private:
  llvm::SmallVector<Parts, 5> axes;
  ir::Dim headRepeats = ir::Dim::fixed(1);
  int64_t columnOffset = 0;
  int64_t selection = 0;
  bool windowed = false;
};

} // namespace kvopt::analysis
