// Equality of values that are produced by the same movements.
#include "passes/analysis/movement/equal_values.h"

#include "ir/movement.h"
#include "ir/node.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Maximum number of nodes on the way to a common value.
constexpr unsigned depthLimit = 12;

/// A value with its axes in another order: axis i of the result is axis `order[i]` of `value`.
struct Reordered {
  const Value* value = nullptr;
  llvm::SmallVector<unsigned, 4> order;
};

/// The value before all Transposes and copies that produce `value`.
Reordered beforeReordering(const Value& value) {
  Reordered before{&value, {}};
  if (!value.type().hasRank())
    return before;
  before.order.resize(value.type().rank());
  std::iota(before.order.begin(), before.order.end(), 0U);
  while (const std::optional<Movement> movement = movementOf(*before.value)) {
    const bool isSame = movement->is(MovementKind::Same);
    const bool isPermutation = movement->is(MovementKind::Permutation) && movement->axes &&
                               movement->axes->size() == before.order.size();
    if (!isSame && !isPermutation)
      break;
    if (isPermutation)
      for (unsigned& axis : before.order)
        axis = (*movement->axes)[axis];
    before.value = movedOperand(*before.value->producer());
  }
  return before;
}

bool hasSameKnownShape(const Value& first, const Value& second) {
  const TensorType& a = first.type();
  const TensorType& b = second.type();
  if (!a.hasRank() || !b.hasRank() || a.rank() != b.rank())
    return false;
  return llvm::all_of(llvm::zip(a.shape(), b.shape()), [](const auto& extents) {
    return std::get<0>(extents).isKnownEqual(std::get<1>(extents));
  });
}

/// Whether two ranges of an axis are provably equal.
bool isSameRange(const MovementRange& first, const MovementRange& second) {
  return first.start.known.isKnownEqual(second.start.known) &&
         first.end.known.isKnownEqual(second.end.known) &&
         first.step.known.isKnownEqual(second.step.known);
}

/// Whether the producers of the two values arrange their data alike. Kinds whose arrangement
/// depends on another operand are not compared.
bool areMovedAlike(const Value& first, const Value& second) {
  const std::optional<Movement> a = movementOf(first);
  const std::optional<Movement> b = movementOf(second);
  if (!a || !b || a->kind != b->kind)
    return false;
  switch (a->kind) {
  case MovementKind::Reshape:
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes:
    return hasSameKnownShape(first, second);
  case MovementKind::Slice:
    return a->axes && a->axes == b->axes && a->ranges.size() == b->ranges.size() &&
           std::equal(a->ranges.begin(), a->ranges.end(), b->ranges.begin(), isSameRange);
  default:
    return false;
  }
}

bool areEqualWithin(const Value& first, const Value& second, unsigned depth) {
  const Reordered a = beforeReordering(first);
  const Reordered b = beforeReordering(second);
  if (a.order != b.order)
    return false;
  if (a.value == b.value)
    return true;
  return depth > 0 && areMovedAlike(*a.value, *b.value) &&
         areEqualWithin(*movedOperand(*a.value->producer()), *movedOperand(*b.value->producer()),
                        depth - 1);
}

} // namespace

bool areEqual(const Value& first, const Value& second) {
  return areEqualWithin(first, second, depthLimit);
}

} // namespace kvopt::analysis
