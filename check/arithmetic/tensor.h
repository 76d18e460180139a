// Tensor: a tensor whose elements are exact.
#pragma once

#include "check/arithmetic/field.h"
#include "check/arithmetic/growth.h"
#include "ir/element_type.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace kvopt::check {

using Extents = llvm::SmallVector<int64_t, 4>;

/// Integers and booleans are exact. Floating-point numbers that depend on constants, positions and
/// masks only are known; all others are elements of the fields.
enum class Kind { Integer, Known, Real };

/// Stands for an integer that the operator's definition leaves open, such as a cast of infinity.
/// Each engine has its own, so that no result may depend on it.
inline constexpr int64_t openInteger = std::numeric_limits<int64_t>::min() + 1;

struct Tensor {
  Kind kind = Kind::Real;
  ir::ElementType type = ir::ElementType::Float;
  Extents shape;
  /// Elements in row-major order, in the vector of the kind. A hollow tensor has none.
  std::vector<int64_t> integers; ///< booleans as 0 and 1
  std::vector<double> known;
  std::vector<Exact> reals;
  /// Whether only the shape is known. Such tensors are Real.
  bool isHollow = false;
  /// Whether elements of a hollow tensor may be other than numbers.
  bool isSpecial = false;
  /// Whether the elements are token ids, or integers computed from them.
  bool isToken = false;
  /// Whether each element is a constant of the model, or computed from constants only.
  bool isConstant = false;
  /// How integers or known numbers depend on sizes; empty if they are all fixed.
  std::vector<GrowthId> growths;
  /// The same of the extents; empty if they are all fixed.
  llvm::SmallVector<GrowthId, 4> extentGrowths;
  /// Whether the elements are weights: exact fractions without a relation to each other.
  bool isWeight = false;
  /// Whether the elements are the same in all steps: constants, and what only constants determine.
  /// Rules need not set it (spreadTables).
  bool isFixed = false;
  /// Bits of the axes along which elements differ as the contents of a constant do, without a
  /// closed form (tableAxesOf). Rules need not set it, either.
  uint32_t tableAxes = 0;

  bool isTableAlong(size_t axis) const { return axis >= 32 || (tableAxes >> axis & 1) != 0; }

  GrowthId growth(size_t element) const { return growths.empty() ? fixedGrowth : growths[element]; }
  GrowthId extentGrowth(size_t axis) const {
    return axis < extentGrowths.size() ? extentGrowths[axis] : fixedGrowth;
  }
  /// An element, which is an integer or known, as a number of Growths.
  Growths::Number number(size_t element) const {
    return {growth(element), isInteger() ? double(integers[element]) : known[element]};
  }
  Growths::Number extent(size_t axis) const { return {extentGrowth(axis), double(shape[axis])}; }

  int64_t count() const;
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  bool isBool() const { return type == ir::ElementType::Bool; }
  bool isInteger() const { return kind == Kind::Integer; }
  bool isReal() const { return kind == Kind::Real; }
};

using Ref = std::shared_ptr<const Tensor>;

/// Largest number of elements of one tensor that is computed.
inline constexpr int64_t mostElements = int64_t(1) << 26;

/// Product of extents; -1 if one is negative or it exceeds mostElements.
int64_t elementCount(llvm::ArrayRef<int64_t> shape);

Ref integerTensor(Extents shape, std::vector<int64_t> elements,
                  ir::ElementType type = ir::ElementType::Int64);
Ref integerScalar(int64_t value);
Ref hollowTensor(Extents shape, bool isSpecial, ir::ElementType type = ir::ElementType::Float,
                 llvm::ArrayRef<GrowthId> extentGrowths = {});

/// Row-major strides.
Extents stridesOf(llvm::ArrayRef<int64_t> shape);

/// Calls `visit` with the coordinates of each element, in row-major order.
void forEachPlace(llvm::ArrayRef<int64_t> shape,
                  llvm::function_ref<void(llvm::ArrayRef<int64_t> place)> visit);

/// The tensor with elements of `from` at the flat indices that `indexOf` gives for each place.
Ref rearranged(const Ref& from, Extents shape,
               llvm::function_ref<int64_t(llvm::ArrayRef<int64_t> place)> indexOf);
/// The tensor with elements from `first` on, in steps of a stride for each axis.
Ref strided(const Ref& from, Extents shape, llvm::ArrayRef<int64_t> strides, int64_t first);
/// The same elements in another shape.
Ref reshaped(const Ref& from, Extents shape);
Ref transposed(const Ref& from, llvm::ArrayRef<int64_t> permutation);
/// Entries [first, last) of an axis.
Ref rowsOf(const Ref& from, unsigned axis, int64_t first, int64_t last);

/// Shape to which both broadcast; nullopt if they do not.
std::optional<Extents> broadcastShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);
/// The tensor repeated to a shape that it broadcasts to.
Ref broadcastTo(const Ref& from, const Extents& shape);

} // namespace kvopt::check
