// Steps through nodes that move data.
#include "passes/analysis/movement/data_movement.h"

#include "ir/movement.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

bool keepsNumbers(ElementType from, ElementType to) {
  bool isHalf = from == ElementType::Float16 || from == ElementType::BFloat16;
  return from == to || (from == ElementType::Int8 && to == ElementType::Float) ||
         (isHalf && (to == ElementType::Float || to == ElementType::Double)) ||
         (from == ElementType::Float && to == ElementType::Double);
}

namespace {

bool isOrderOf(const Movement& permutation, const AxisMap& map) {
  return permutation.axes && permutation.axes->size() == map.rank();
}

bool insertAxes(AxisMap& map, const Movement& movement) {
  if (!movement.axes)
    return false;
  for (unsigned axis : *movement.axes)
    map.insertAxis(axis);
  return true;
}

bool removeAxes(AxisMap& map, const Movement& movement) {
  if (!movement.axes)
    return false;
  for (unsigned axis : llvm::reverse(*movement.axes))
    if (!map.removeAxis(axis))
      return false;
  return true;
}

bool undoRepeats(AxisMap& map, const TensorType& before, const TensorType& after) {
  if (before.rank() != after.rank())
    return false;
  for (unsigned axis = 0; axis < before.rank(); ++axis) {
    const Dim& extent = before.shape()[axis];
    if (extent.isKnownEqual(after.shape()[axis]))
      continue;
    if (extent.value() != 1 || !map.undoRepeat(axis))
      return false;
  }
  return true;
}

std::optional<SlicedRange> rangeOf(const Movement& movement) {
  std::optional<unsigned> axis = movement.axis();
  if (!axis || movement.ranges.front().step.known.value() != 1)
    return std::nullopt;
  const std::optional<int64_t> start = movement.ranges.front().start.known.value();
  if (!start || *start == INT64_MIN)
    return std::nullopt;
  return SlicedRange{*axis, *start};
}

/// Whether a range that ends at `end` keeps the last of `extent` elements. No axis is longer than
/// the numbers that exporters write for "to the end".
bool isToEnd(const Dim& end, const Dim& extent) {
  const std::optional<int64_t> known = end.value();
  return end.isKnownEqual(extent) || (known && !extent.value() && *known >= INT32_MAX);
}

bool undoSlice(AxisMap& map, const Movement& movement, const TensorType& before) {
  auto range = rangeOf(movement);
  return range && map.undoSlice(range->axis, range->start, before.shape()[range->axis]);
}

bool undoGather(const Node& node, AxisMap& map, const Movement& movement,
                const TensorType& before) {
  const Value* index = node.operand(movement.indices);
  std::optional<unsigned> axis = movement.axis();
  auto known = index ? index->knownIntegers() : std::nullopt;
  if (!axis || !known || known->size() != 1 || !index->type().hasRank() || index->type().rank() > 1)
    return false;
  std::optional<int64_t> selected = known->front().value();
  if (!selected)
    return false;
  if (index->type().rank() == 0)
    map.insertAxis(*axis);
  return map.undoSlice(*axis, *selected, before.shape()[*axis]);
}

} // namespace

bool onlyMovesData(const Node& node) {
  std::optional<MovementKind> kind = movementKind(node);
  if (!kind)
    return false;
  switch (*kind) {
  case MovementKind::Convert:
    return keepsNumbers(movedOperand(node)->type().elementType(),
                        node.result().type().elementType());
  case MovementKind::PointGather:
  case MovementKind::Concat:
    return false;
  case MovementKind::Same:
  case MovementKind::Permutation:
  case MovementKind::Reshape:
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes:
  case MovementKind::Broadcast:
  case MovementKind::Repeat:
  case MovementKind::Slice:
  case MovementKind::Gather:
    return true;
  }
  return false;
}

std::optional<SlicedRange> slicedRange(const Value& result) {
  const Node* node = result.producer();
  if (!node || movementKind(*node) != MovementKind::Slice)
    return std::nullopt;
  const Movement movement = *movementOf(result);
  std::optional<SlicedRange> range = rangeOf(movement);
  if (range)
    range->toEnd =
        isToEnd(movement.ranges.front().end.known, movedOperand(*node)->type().dim(range->axis));
  return range;
}

bool isMovedFromInput(const Value& value) {
  const Value* source = &value;
  while (const Node* node = source->producer()) {
    const std::optional<MovementKind> kind = movementKind(*node);
    if (!kind || *kind == MovementKind::Concat)
      return false;
    source = movedOperand(*node);
  }
  return source->isGraphInput() && !source->constant();
}

std::optional<AxisMap> mapBefore(const Value& result, AxisMap map) {
  const Node& node = *result.producer();
  if (!onlyMovesData(node))
    return std::nullopt;
  const Movement movement = *movementOf(result);
  const TensorType& before = movedOperand(node)->type();
  const TensorType& after = result.type();
  if (!before.hasRank() || !after.hasRank() || after.rank() != map.rank())
    return std::nullopt;
  auto keep = [&](bool proved) { return proved ? std::make_optional(map) : std::nullopt; };
  switch (movement.kind) {
  case MovementKind::Same:
  case MovementKind::Convert:
    return map;
  case MovementKind::Permutation:
    return isOrderOf(movement, map) ? std::make_optional(map.permutedBack(*movement.axes))
                                    : std::nullopt;
  case MovementKind::Reshape:
    return keep(map.reshape(before.shape()));
  case MovementKind::RemoveAxes:
    return keep(insertAxes(map, movement));
  case MovementKind::InsertAxes:
    return keep(removeAxes(map, movement));
  case MovementKind::Broadcast:
  case MovementKind::Repeat:
    return keep(undoRepeats(map, before, after));
  case MovementKind::Slice:
    return keep(undoSlice(map, movement, before));
  case MovementKind::Gather:
    return keep(undoGather(node, map, movement, before));
  case MovementKind::PointGather:
  case MovementKind::Concat:
    return std::nullopt;
  }
  return std::nullopt;
}

std::optional<AxisMap> mapAfter(const Node& node, AxisMap map) {
  if (!onlyMovesData(node))
    return std::nullopt;
  const Movement movement = *movementOf(node.result());
  const TensorType& before = movedOperand(node)->type();
  const TensorType& after = node.result().type();
  if (!before.hasRank() || !after.hasRank() || before.rank() != map.rank())
    return std::nullopt;
  auto keep = [&](bool proved) { return proved ? std::make_optional(map) : std::nullopt; };
  switch (movement.kind) {
  case MovementKind::Same:
  case MovementKind::Convert:
    return map;
  case MovementKind::Permutation:
    return isOrderOf(movement, map) ? std::make_optional(map.permuted(*movement.axes))
                                    : std::nullopt;
  case MovementKind::Reshape:
    return keep(map.reshape(after.shape()));
  case MovementKind::RemoveAxes:
    return keep(removeAxes(map, movement));
  case MovementKind::InsertAxes:
    return keep(insertAxes(map, movement));
  case MovementKind::Broadcast:
  case MovementKind::Repeat:
  case MovementKind::Slice:
  case MovementKind::Gather:
  case MovementKind::PointGather:
  case MovementKind::Concat:
    return std::nullopt;
  }
  return std::nullopt;
}

} // namespace kvopt::analysis
