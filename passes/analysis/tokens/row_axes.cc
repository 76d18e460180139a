// Rows through changes of shape.
#include "passes/analysis/tokens/row_axes.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::analysis {
using namespace ir;

namespace {

RowAxes::Axis axisOf(const Dim& extent, bool isRow) {
  RowAxes::Axis axis;
  if (extent.value() != 1)
    axis.push_back({extent, isRow});
  return axis;
}

} // namespace

RowAxes::RowAxes(llvm::ArrayRef<Dim> shape, llvm::ArrayRef<unsigned> rowAxes) {
  for (unsigned axis = 0; axis < shape.size(); ++axis)
    axes.push_back(axisOf(shape[axis], llvm::is_contained(rowAxes, axis)));
}

bool RowAxes::hasRows(unsigned axis) const {
  return llvm::any_of(axes[axis], [](const Factor& factor) { return factor.isRow; });
}

bool RowAxes::hasRowsOf(const RowAxes& other) const {
  for (unsigned fromEnd = 1; fromEnd <= std::max(rank(), other.rank()); ++fromEnd) {
    const bool ours = fromEnd <= rank() && hasRows(rank() - fromEnd);
    const bool theirs = fromEnd <= other.rank() && other.hasRows(other.rank() - fromEnd);
    if (ours != theirs)
      return false;
  }
  return true;
}

void RowAxes::insert(unsigned axis, const Dim& extent, bool isRow) {
  axes.insert(axes.begin() + axis, axisOf(extent, isRow));
}

void RowAxes::replace(unsigned axis, const Dim& extent, bool isRow) {
  axes[axis] = axisOf(extent, isRow);
}

void RowAxes::replace(unsigned axis, const RowAxes& other) {
  remove(axis);
  axes.insert(axes.begin() + axis, other.axes.begin(), other.axes.end());
}

RowAxes RowAxes::permuted(llvm::ArrayRef<unsigned> order) const {
  RowAxes result;
  for (unsigned axis : order)
    result.axes.push_back(axes[axis]);
  return result;
}

namespace {

/// Takes the outermost factors of `left`, or its innermost ones, whose product is `extent`. False
/// if there are none.
bool takeFactors(llvm::SmallVector<RowAxes::Factor, 8>& left, Dim extent, bool innermost,
                 RowAxes::Axis& axis) {
  while (extent.value() != 1) {
    if (left.empty())
      return false;
    auto* next = innermost ? &left.back() : left.begin();
    auto* place = innermost ? axis.begin() : axis.end();
    if (const auto rest = extent.dividedBy(next->extent)) {
      axis.insert(place, *next);
      left.erase(next);
      extent = *rest;
    } else if (const auto other = next->extent.dividedBy(extent)) {
      axis.insert(place, RowAxes::Factor{extent, next->isRow});
      next->extent = *other;
      extent = Dim::fixed(1);
    } else {
      return false;
    }
  }
  return true;
}

} // namespace

std::optional<RowAxes> RowAxes::reshaped(llvm::ArrayRef<Dim> shape) const {
  llvm::SmallVector<Factor, 8> left;
  for (const Axis& axis : axes)
    left.append(axis.begin(), axis.end());
  RowAxes result;
  result.axes.resize(shape.size());
  size_t first = 0;
  size_t last = shape.size();
  for (; first < last && !shape[first].isUnknown(); ++first)
    if (!takeFactors(left, shape[first], /*innermost=*/false, result.axes[first]))
      return std::nullopt;
  for (; last > first && !shape[last - 1].isUnknown(); --last)
    if (!takeFactors(left, shape[last - 1], /*innermost=*/true, result.axes[last - 1]))
      return std::nullopt;
  if (first + 1 < last || (first == last && !left.empty()))
    return std::nullopt;
  // The one axis of unknown extent gets the remaining factors.
  if (first < last)
    result.axes[first].assign(left.begin(), left.end());
  return result;
}

RowAxes RowAxes::broadcast(llvm::ArrayRef<Dim> shape) const {
  RowAxes result(shape, {});
  for (unsigned fromEnd = 1; fromEnd <= std::min(rank(), result.rank()); ++fromEnd)
    if (const Axis& own = axes[rank() - fromEnd]; !own.empty())
      result.axes[result.rank() - fromEnd] = own;
  return result;
}

} // namespace kvopt::analysis
