// Steps through nodes that move data.
#include "passes/analysis/movement/data_movement.h"

#include "ir/op.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

enum class Mover {
  None,
  Same,
  Transpose,
  Reshape,
  Squeeze,
  Unsqueeze,
  Repeat,
  Slice,
  Split,
  Gather
};

/// Whether each number comes out as it goes in.
bool keepsNumbers(ElementType from, ElementType to) {
  bool isHalf = from == ElementType::Float16 || from == ElementType::BFloat16;
  return from == to || (isHalf && (to == ElementType::Float || to == ElementType::Double)) ||
         (from == ElementType::Float && to == ElementType::Double);
}

Mover moverOf(const Node& node) {
  if (!node.op().isOnnx() || !node.operand(0))
    return Mover::None;
  if ((node.op() == "Cast" || node.op() == "CastLike") &&
      !keepsNumbers(node.operand(0)->type().elementType(), node.result().type().elementType()))
    return Mover::None;
  return llvm::StringSwitch<Mover>(node.op().type())
      .Cases("Cast", "CastLike", "Identity", Mover::Same)
      .Case("Transpose", Mover::Transpose)
      .Cases("Reshape", "Flatten", Mover::Reshape)
      .Case("Squeeze", Mover::Squeeze)
      .Case("Unsqueeze", Mover::Unsqueeze)
      .Cases("Expand", "Tile", Mover::Repeat)
      .Case("Slice", Mover::Slice)
      .Case("Split", Mover::Split)
      .Case("Gather", Mover::Gather)
      .Default(Mover::None);
}

/// Integers of an operand or, in older opsets, of an attribute.
std::optional<llvm::SmallVector<int64_t, 4>> integers(const Node& node, unsigned operand,
                                                      llvm::StringRef attribute) {
  llvm::SmallVector<int64_t, 4> values;
  if (auto written = node.intsAttr(attribute)) {
    values.assign(written->begin(), written->end());
    return values;
  }
  const Value* given = node.operand(operand);
  auto known = given ? given->knownIntegers() : std::nullopt;
  if (!known)
    return std::nullopt;
  for (const Dim& element : *known) {
    std::optional<int64_t> value = element.value();
    if (!value)
      return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::optional<llvm::SmallVector<int64_t, 5>> permutation(const Node& node, unsigned rank) {
  llvm::SmallVector<int64_t, 5> order;
  if (auto written = node.intsAttr("perm"))
    order.assign(written->begin(), written->end());
  else
    for (unsigned i = rank; i-- > 0;)
      order.push_back(i);
  llvm::SmallVector<bool, 5> seen(rank, false);
  for (int64_t axis : order)
    if (axis < 0 || axis >= static_cast<int64_t>(rank) ||
        std::exchange(seen[static_cast<size_t>(axis)], true))
      return std::nullopt;
  return order.size() == rank ? std::make_optional(order) : std::nullopt;
}

/// The axes that Squeeze takes out of, or Unsqueeze puts into, the tensor of rank `larger`, in
/// increasing order.
std::optional<llvm::SmallVector<unsigned, 4>> axesOf(const Node& node, unsigned larger) {
  auto written = integers(node, 1, "axes");
  if (!written)
    return std::nullopt;
  llvm::SmallVector<unsigned, 4> axes;
  for (int64_t axis : *written) {
    auto normalized = normalizedAxis(axis, larger);
    if (!normalized || llvm::is_contained(axes, *normalized))
      return std::nullopt;
    axes.push_back(*normalized);
  }
  llvm::sort(axes);
  return axes;
}

bool insertAxes(AxisMap& map, llvm::ArrayRef<unsigned> axes) {
  for (unsigned axis : axes)
    map.insertAxis(axis);
  return true;
}

bool removeAxes(AxisMap& map, llvm::ArrayRef<unsigned> axes) {
  for (unsigned axis : llvm::reverse(axes))
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

bool undoGather(const Node& node, AxisMap& map, const TensorType& before) {
  const Value* index = node.operand(1);
  auto axis = normalizedAxis(node.intAttr("axis", 0), before.rank());
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

bool onlyMovesData(const Node& node) { return moverOf(node) != Mover::None; }

std::optional<SlicedRange> slicedRange(const Value& result) {
  const Node* node = result.producer();
  Mover mover = node ? moverOf(*node) : Mover::None;
  if (mover != Mover::Slice && mover != Mover::Split)
    return std::nullopt;
  const TensorType& before = node->operand(0)->type();
  if (!before.hasRank())
    return std::nullopt;
  SlicedRange range;
  if (mover == Mover::Split) {
    auto axis = normalizedAxis(node->intAttr("axis", 0), before.rank());
    if (!axis)
      return std::nullopt;
    range.axis = *axis;
    for (unsigned i = 0; i < result.resultIndex(); ++i) {
      std::optional<int64_t> extent = node->result(i).type().dim(range.axis).value();
      if (!extent || __builtin_add_overflow(range.start, *extent, &range.start))
        return std::nullopt;
    }
    return range;
  }
  auto starts = integers(*node, 1, "starts");
  auto axes = integers(*node, 3, "axes");
  auto steps = integers(*node, 4, "steps");
  if (!starts || starts->size() != 1 || (axes && axes->size() != 1) ||
      (!axes && (node->operand(3) || before.rank() != 1)) || (node->operand(4) && !steps) ||
      (steps && (steps->size() != 1 || steps->front() != 1)))
    return std::nullopt;
  auto axis = normalizedAxis(axes ? axes->front() : 0, before.rank());
  if (!axis)
    return std::nullopt;
  range.axis = *axis;
  range.start = starts->front();
  std::optional<int64_t> extent = before.shape()[*axis].value();
  if (extent) {
    if (range.start < 0)
      range.start += *extent;
    range.start = std::clamp<int64_t>(range.start, 0, *extent);
  }
  return range;
}

std::optional<AxisMap> mapBefore(const Value& result, AxisMap map) {
  const Node& node = *result.producer();
  const TensorType& before = node.operand(0)->type();
  const TensorType& after = result.type();
  if (!before.hasRank() || !after.hasRank() || after.rank() != map.rank())
    return std::nullopt;
  auto keep = [&](bool proved) { return proved ? std::make_optional(map) : std::nullopt; };
  switch (moverOf(node)) {
  case Mover::None:
    return std::nullopt;
  case Mover::Same:
    return map;
  case Mover::Transpose: {
    auto order = permutation(node, map.rank());
    return order ? std::make_optional(map.permutedBack(*order)) : std::nullopt;
  }
  case Mover::Reshape:
    return keep(map.reshape(before.shape()));
  case Mover::Squeeze: {
    auto axes = axesOf(node, before.rank());
    return keep(axes && insertAxes(map, *axes));
  }
  case Mover::Unsqueeze: {
    auto axes = axesOf(node, after.rank());
    return keep(axes && removeAxes(map, *axes));
  }
  case Mover::Repeat:
    return keep(undoRepeats(map, before, after));
  case Mover::Slice:
  case Mover::Split: {
    auto range = slicedRange(result);
    return keep(range && map.undoSlice(range->axis, range->start, before.shape()[range->axis]));
  }
  case Mover::Gather:
    return keep(undoGather(node, map, before));
  }
  return std::nullopt;
}

std::optional<AxisMap> mapAfter(const Node& node, AxisMap map) {
  const TensorType& before = node.operand(0)->type();
  const TensorType& after = node.result().type();
  if (!before.hasRank() || !after.hasRank() || before.rank() != map.rank())
    return std::nullopt;
  auto keep = [&](bool proved) { return proved ? std::make_optional(map) : std::nullopt; };
  switch (moverOf(node)) {
  case Mover::Same:
    return map;
  case Mover::Transpose: {
    auto order = permutation(node, map.rank());
    return order ? std::make_optional(map.permuted(*order)) : std::nullopt;
  }
  case Mover::Reshape:
    return keep(map.reshape(after.shape()));
  case Mover::Squeeze: {
    auto axes = axesOf(node, before.rank());
    return keep(axes && removeAxes(map, *axes));
  }
  case Mover::Unsqueeze: {
    auto axes = axesOf(node, after.rank());
    return keep(axes && insertAxes(map, *axes));
  }
  default:
    return std::nullopt;
  }
}

} // namespace kvopt::analysis
