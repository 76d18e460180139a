// AxisMap: the logical axes along each axis of a tensor that holds keys or values, followed through
// operators that only move data.
#pragma once

#include "ir/cache_layout.h"
#include "ir/type.h"

namespace kvopt::analysis {

/// A part of one logical axis of keys or values [B,H,S,D]: 'B', 'H', 'S' (the sequence), 'D', or
/// '*' for an axis along which several tensors are stacked and one is selected.
struct AxisPart {
  char role = '*';
  ir::Dim extent;
  /// The product of the extents of all less significant parts of the same logical axis.
  ir::Dim stride = ir::Dim::fixed(1);
};

/// For each axis of a tensor, the parts along it, most significant first; none if the extent is 1.
/// All steps fail if extents do not prove the result: they return false, and the map is then
/// invalid.
class AxisMap {
public:
  using Parts = llvm::SmallVector<AxisPart, 2>;

  /// Map of keys or values as attention reads them; nullopt unless the rank is 4.
  static std::optional<AxisMap> ofAttentionOperand(const ir::TensorType& type);

  unsigned rank() const { return axes.size(); }
  const Parts& axis(unsigned index) const { return axes[index]; }
  /// The axis that consists of the whole sequence and nothing else.
  std::optional<unsigned> sequenceAxis() const;
  /// Requires sequenceAxis().
  const ir::Dim& sequenceExtent() const;
  void setSequenceExtent(const ir::Dim& extent);

  /// Axis i of the result is axis `order[i]` of this map.
  AxisMap permuted(llvm::ArrayRef<unsigned> order) const;
  AxisMap permutedBack(llvm::ArrayRef<unsigned> order) const;
  /// Merges and splits axes in row-major order; splits of the sequence fail.
  bool reshape(llvm::ArrayRef<ir::Dim> shape);
  void insertAxis(unsigned position);
  /// Fails unless the axis consists of a single head or batch row.
  bool removeAxis(unsigned position);
  /// Map of the tensor before it was repeated along `axis`, which held repeated heads.
  bool undoRepeat(unsigned axis);
  /// Map of the tensor before `[start, start + extent)` of an axis of extent `whole` was taken.
  bool undoSlice(unsigned axis, int64_t start, const ir::Dim& whole);

  /// Number of query heads that each head was repeated for.
  const ir::Dim& repeats() const { return headRepeats; }
  /// First of the selected columns of D.
  int64_t firstColumn() const { return columnOffset; }
  /// Index of the selected tensor along an axis '*'.
  int64_t selected() const { return selection; }
  bool isWindow() const { return windowed; }

  /// The layout. An axis of extent 1 gets the letter of a missing B or H. Unknown if strides of
  /// repeated heads are inconsistent.
  ir::CacheLayout layout() const;

private:
  llvm::SmallVector<Parts, 5> axes;
  ir::Dim headRepeats = ir::Dim::fixed(1);
  int64_t columnOffset = 0;
  int64_t selection = 0;
  bool windowed = false;
};

} // namespace kvopt::analysis
