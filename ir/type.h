// TensorType: element type and symbolic shape of a value.
#pragma once

#include "ir/dims/dim.h"
#include "ir/element_type.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <string>

namespace kvopt::ir {

using Shape = llvm::SmallVector<Dim, 4>;

/// What is known of a value: its element type (`Undefined` when not known, or when the value is no
/// tensor) and, if the rank is known, one `Dim` per axis, each of which may be unknown.
class TensorType {
public:
  TensorType() = default;
  explicit TensorType(ElementType elementType) : element(elementType) {}
  TensorType(ElementType elementType, Shape dims)
      : element(elementType), dimensions(std::move(dims)) {}
  /// A type of fixed extents.
  static TensorType fixed(ElementType element, llvm::ArrayRef<int64_t> extents);

  ElementType elementType() const { return element; }
  bool hasRank() const { return dimensions.has_value(); }
  /// Requires hasRank().
  unsigned rank() const;
  /// Requires hasRank().
  llvm::ArrayRef<Dim> shape() const;
  /// The extent of an axis; negative axes count from the end; unknown if rank or extent is.
  Dim dim(int64_t axis) const;
  /// All extents, if rank and every extent are constants.
  std::optional<llvm::SmallVector<int64_t, 4>> fixedShape() const;
  /// The product of all extents.
  Dim elementCount() const;

  void setElementType(ElementType type) { element = type; }
  void setShape(Shape dims) { dimensions = std::move(dims); }

  /// `float[batch, 2, past + 1, 16]`; `?` for what is not known.
  std::string str() const;

  bool operator==(const TensorType&) const = default;

private:
  ElementType element = ElementType::Undefined;
  std::optional<Shape> dimensions;
};

/// An axis in [0, rank), negative ones counted from the end; nullopt when out of range.
std::optional<unsigned> normalizedAxis(int64_t axis, unsigned rank);

} // namespace kvopt::ir
