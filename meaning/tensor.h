// Tensors whose elements are formulas, and what definitions of operators are made of.
#pragma once

#include "ir/element_type.h"
#include "meaning/scalar.h"

#include <memory>

namespace kvopt::meaning {

/// The sort of elements: 16-bit floats and wider ones are reals.
Sort sortOf(ir::ElementType type);

/// Extents, an element type, and one element at indices. Copies share all.
class Tensor {
public:
  using Element = std::function<Scalar(Index)>;

  Tensor() = default;
  Tensor(Scalars extents, ir::ElementType type, Element element)
      : parts_(std::make_shared<const Parts>(Parts{std::move(extents), type, std::move(element)})) {
  }

  explicit operator bool() const { return parts_ != nullptr; }
  bool isSame(const Tensor& other) const { return parts_ == other.parts_; }
  Index extents() const { return parts_->extents; }
  /// Unknown where the tensor has no such axis.
  Scalar extent(unsigned axis) const {
    return axis < rank() ? parts_->extents[axis] : unknown({}, Sort::Integer);
  }
  unsigned rank() const { return static_cast<unsigned>(parts_->extents.size()); }
  ir::ElementType type() const { return parts_->type; }
  /// Each index is at least 0 and below the extent of its axis. Unknown where there are not as many
  /// as axes.
  Scalar at(Index index) const {
    return index.size() == rank() ? parts_->element(index) : unknown(index, sortOf(type()));
  }
  /// The number of elements.
  Scalar count(Formulas& formulas) const { return product(formulas, extents()); }

private:
  Scalar unknown(Index index, Sort sort) const;

  struct Parts {
    Scalars extents;
    ir::ElementType type;
    Element element;
  };
  std::shared_ptr<const Parts> parts_;
};

inline Scalars listed(Index list) { return Scalars(list.begin(), list.end()); }
/// A list with other numbers. A place beyond it changes nothing.
Scalars replaced(Index list, size_t place, Scalar by);
Scalars inserted(Index list, size_t place, Scalar item);
Scalars without(Index list, size_t place);
Scalars joined(Index a, Index b);

/// The index of an element in row-major order, and the indices of an element from it.
Scalar flat(Formulas& formulas, Index index, Index extents);
Scalars unflat(Scalar place, Index extents);

/// The indices of a broadcast operand: those of the last axes, and 0 where the extent is 1.
Scalars broadcastIndex(const Tensor& operand, Index index);

/// A tensor with its elements in the same order under other extents.
Tensor reshaped(Formulas& formulas, const Tensor& tensor, Scalars extents);
/// Axis k of the result is axis `order[k]`.
Tensor transposed(const Tensor& tensor, llvm::ArrayRef<int64_t> order);
/// A tensor of whose elements nothing is known.
Tensor unknownTensor(Formulas& formulas, Scalars extents, ir::ElementType type);
/// Elements from integers, in a list.
Tensor listOf(Formulas& formulas, Scalars numbers, ir::ElementType type = ir::ElementType::Int64);

} // namespace kvopt::meaning
