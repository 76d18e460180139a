// Which elements of a tensor belong to which token's row.
#pragma once

#include "ir/type.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <vector>

namespace kvopt::analysis {

/// The axes of a tensor, each as the product of the extents that it was made of. Elements that
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
  /// The axes of a shape; `rowAxes` are those that count rows.
  RowAxes(llvm::ArrayRef<ir::Dim> shape, llvm::ArrayRef<unsigned> rowAxes);

  unsigned rank() const { return static_cast<unsigned>(axes.size()); }
  bool hasRows(unsigned axis) const;
  bool isOne(unsigned axis) const { return axes[axis].empty(); }
  /// Whether the two have rows on the same axes, counted from the last one.
  bool hasRowsOf(const RowAxes& other) const;

  void insert(unsigned axis, const ir::Dim& extent, bool isRow = false);
  void remove(unsigned axis) { axes.erase(axes.begin() + axis); }
  void replace(unsigned axis, const ir::Dim& extent, bool isRow = false);
  /// Puts the axes of `other` in the place of one axis.
  void replace(unsigned axis, const RowAxes& other);
  RowAxes permuted(llvm::ArrayRef<unsigned> order) const;
  /// The same elements, in row-major order, in another shape; nullopt where extents do not say
  /// which factors become which axes.
  std::optional<RowAxes> reshaped(llvm::ArrayRef<ir::Dim> shape) const;
  /// Broadcast to a shape of at least as many axes; what is new on an axis has no rows.
  RowAxes broadcast(llvm::ArrayRef<ir::Dim> shape) const;

private:
  std::vector<Axis> axes;
};

} // namespace kvopt::analysis
