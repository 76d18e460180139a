// RowAxes: the elements of a tensor that belong to each token's row.
#pragma once

#include "ir/type.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <vector>

namespace kvopt::analysis {

/// The axes of a tensor, each as the product of the extents that it was formed from. Elements that
/// differ in the index of a row factor belong to different rows: those of other tokens, or of other
/// batch rows. An extent of one has no factor.
class RowAxes {
public:
  struct Factor {
    ir::Dim extent;
    bool isRow = false;

    bool operator==(const Factor& other) const {
      return isRow == other.isRow && extent.isKnownEqual(other.extent);
    }
  };
  using Axis = llvm::SmallVector<Factor, 2>;

  RowAxes() = default;
  /// Axes of a shape; `rowAxes` are the axes that count rows.
  RowAxes(llvm::ArrayRef<ir::Dim> shape, llvm::ArrayRef<unsigned> rowAxes);

  unsigned rank() const { return static_cast<unsigned>(axes.size()); }
  bool hasRows(unsigned axis) const;
  bool isOne(unsigned axis) const { return axes[axis].empty(); }
  /// Whether both have rows on the same axes, counted from the last.
  bool hasRowsOf(const RowAxes& other) const;

  void insert(unsigned axis, const ir::Dim& extent, bool isRow = false);
  void remove(unsigned axis) { axes.erase(axes.begin() + axis); }
  void replace(unsigned axis, const ir::Dim& extent, bool isRow = false);
  /// Replaces one axis by the axes of `other`.
  void replace(unsigned axis, const RowAxes& other);
  RowAxes permuted(llvm::ArrayRef<unsigned> order) const;
  /// The same elements, in row-major order, in another shape; nullopt if extents do not determine
  /// the mapping of factors to axes.
  std::optional<RowAxes> reshaped(llvm::ArrayRef<ir::Dim> shape) const;
  /// Broadcast to a shape of at least the same rank; new axes have no rows.
  RowAxes broadcast(llvm::ArrayRef<ir::Dim> shape) const;

private:
  std::vector<Axis> axes;
};

} // namespace kvopt::analysis
