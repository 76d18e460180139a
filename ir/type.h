// TensorType: element type and symbolic shape of a value.
#pragma once

#include "ir/dims/dim.h"
#include "ir/element_type.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <string>

namespace kvopt::ir {

using Shape = llvm::SmallVector<Dim, 4>;

/// Known properties of a value: its element type (`Undefined` if unknown, or if the value is not a
/// tensor) and, if the rank is known, one `Dim` per axis. A `Dim` may be unknown, too.
class TensorType {
public:
  TensorType() = default;
  explicit TensorType(ElementType elementType) : element(elementType) {}
  TensorType(ElementType elementType, Shape dims)
      : element(elementType), dimensions(std::move(dims)) {}
  /// A type with fixed extents.
  static TensorType fixed(ElementType element, llvm::ArrayRef<int64_t> extents);

  ElementType elementType() const { return element; }
  bool hasRank() const { return dimensions.has_value(); }
  /// Requires hasRank().
  unsigned rank() const;
  /// Requires hasRank().
  llvm::ArrayRef<Dim> shape() const;
  /// Extent of an axis; negative axes count from the end. Unknown if the rank or the extent is.
  Dim dim(int64_t axis) const;
  /// All extents, if the rank is known and every extent is constant.
  std::optional<llvm::SmallVector<int64_t, 4>> fixedShape() const;
  /// Product of all extents.
  Dim elementCount() const;

  void setElementType(ElementType type) { element = type; }
  void setShape(Shape dims) { dimensions = std::move(dims); }

  /// Text such as `float[batch, 2, past + 1, 16]`, with `?` for unknown parts.
  std::string str() const;

  bool operator==(const TensorType&) const = default;

private:
  ElementType element = ElementType::Undefined;
  std::optional<Shape> dimensions;
};

/// The axis as a number in [0, rank); negative axes count from the end. nullopt if out of range.
std::optional<unsigned> normalizedAxis(int64_t axis, unsigned rank);

} // namespace kvopt::ir
