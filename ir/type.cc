// TensorType: accessors and printing.
#include "ir/type.h"

#include <cassert>

namespace kvopt::ir {

TensorType TensorType::fixed(ElementType element, llvm::ArrayRef<int64_t> extents) {
  Shape dims;
  for (int64_t extent : extents)
    dims.push_back(Dim::fixed(extent));
  return TensorType(element, std::move(dims));
}

unsigned TensorType::rank() const {
  assert(hasRank());
  return dimensions->size();
}

llvm::ArrayRef<Dim> TensorType::shape() const {
  assert(hasRank());
  return *dimensions;
}

Dim TensorType::dim(int64_t axis) const {
  if (!hasRank())
    return Dim::unknown();
  std::optional<unsigned> index = normalizedAxis(axis, rank());
  return index ? (*dimensions)[*index] : Dim::unknown();
}

std::optional<llvm::SmallVector<int64_t, 4>> TensorType::fixedShape() const {
  if (!hasRank())
    return std::nullopt;
  llvm::SmallVector<int64_t, 4> extents;
  for (const Dim& extent : *dimensions) {
    std::optional<int64_t> value = extent.value();
    if (!value)
      return std::nullopt;
    extents.push_back(*value);
  }
  return extents;
}

Dim TensorType::elementCount() const {
  if (!hasRank())
    return Dim::unknown();
  Dim count = Dim::fixed(1);
  for (const Dim& extent : *dimensions)
    count = count * extent;
  return count;
}

std::string TensorType::str() const {
  std::string text = onnxName(element).str();
  if (!hasRank())
    return text;
  text += '[';
  for (size_t i = 0; i < dimensions->size(); ++i) {
    if (i)
      text += ", ";
    text += (*dimensions)[i].str();
  }
  return text + ']';
}

std::optional<unsigned> normalizedAxis(int64_t axis, unsigned rank) {
  int64_t normalized = axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
  if (normalized < 0 || normalized >= static_cast<int64_t>(rank))
    return std::nullopt;
  return static_cast<unsigned>(normalized);
}

} // namespace kvopt::ir
