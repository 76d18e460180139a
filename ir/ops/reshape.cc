// Operators that change the shape of a tensor: Reshape, Flatten, Squeeze, Unsqueeze, Transpose,
// Expand, Tile.
#include "ir/shapes/shape_rules.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {
namespace {

// Without perm the axes are reversed.
void readTranspose(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  auto perm = node.intsAttr("perm");
  if (perm && (!data.hasRank() || perm->size() == data.rank())) {
    movement.axes = axesWithin(*perm, static_cast<unsigned>(perm->size()));
  } else if (!perm && data.hasRank()) {
    movement.axes.emplace();
    for (unsigned axis = data.rank(); axis-- > 0;)
      movement.axes->push_back(axis);
  }
}

void readUnsqueeze(const Value& result, Movement& movement) {
  const TensorType& data = result.producer()->operand(0)->type();
  auto axes = knownIntegersOf(*result.producer(), 1, "axes");
  if (!axes || !(result.type().hasRank() || data.hasRank()))
    return;
  const auto added = static_cast<unsigned>(axes->size());
  const unsigned rank = result.type().hasRank() ? result.type().rank() : data.rank() + added;
  if (data.hasRank() && data.rank() + added != rank)
    return;
  movement.axes = axesWithin(*axes, rank);
  if (movement.axes)
    llvm::sort(*movement.axes);
}

// Without axes, all axes of extent 1 are removed: the known ones, if the ranks agree.
void readSqueeze(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  if (!data.hasRank())
    return;
  auto axes = knownIntegersOf(node, 1, "axes");
  if (!axes && !node.operand(1)) {
    axes.emplace();
    for (unsigned axis = 0; axis < data.rank(); ++axis)
      if (data.shape()[axis].value() == 1)
        axes->push_back(axis);
    if (!result.type().hasRank())
      return;
  }
  if (!axes || (result.type().hasRank() && result.type().rank() + axes->size() != data.rank()))
    return;
  movement.axes = axesWithin(*axes, data.rank());
  if (movement.axes)
    llvm::sort(*movement.axes);
}

void readExpand(const Value& result, Movement& movement) {
  const Value* shape = result.producer()->operand(1);
  if (!shape || !result.type().hasRank() || shape->type().dim(0).value() != result.type().rank())
    return;
  auto known = shape->knownIntegers();
  for (unsigned axis = 0; axis < result.type().rank(); ++axis)
    movement.counts.push_back({known ? (*known)[axis] : Dim::unknown(), shape, axis});
}

void readTile(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  const Value* repeats = node.operand(1);
  auto known = repeats ? repeats->knownIntegers() : std::nullopt;
  if (!data.hasRank() || !repeats || (known && known->size() != data.rank()))
    return;
  for (unsigned axis = 0; axis < data.rank(); ++axis)
    movement.counts.push_back({known ? (*known)[axis] : Dim::unknown(), repeats, axis});
}

} // namespace

void register_reshape(OpRegistry& registry) {
  define(registry, "Reshape", 5)
      .in("data")
      .in("shape")
      .out("reshaped")
      .moves(MovementKind::Reshape)
      .view();
  define(registry, "Reshape", 14)
      .in("data")
      .in("shape")
      .out("reshaped")
      .attr("allowzero", int64_t{0})
      .moves(MovementKind::Reshape)
      .view();
  define(registry, "Flatten", 1)
      .in("input")
      .out("output")
      .attr("axis", int64_t{1})
      .moves(MovementKind::Reshape)
      .view();
  define(registry, "Squeeze", 1)
      .in("data")
      .out("squeezed")
      .attr("axes", AttributeKind::Ints)
      .moves(MovementKind::RemoveAxes, readSqueeze)
      .view();
  define(registry, "Squeeze", 13)
      .in("data")
      .in("axes?")
      .out("squeezed")
      .moves(MovementKind::RemoveAxes, readSqueeze)
      .view();
  define(registry, "Unsqueeze", 1)
      .in("data")
      .out("expanded")
      .requiredAttr("axes", AttributeKind::Ints)
      .moves(MovementKind::InsertAxes, readUnsqueeze)
      .view();
  define(registry, "Unsqueeze", 13)
      .in("data")
      .in("axes")
      .out("expanded")
      .moves(MovementKind::InsertAxes, readUnsqueeze)
      .view();
  define(registry, "Transpose", 1)
      .in("data")
      .out("transposed")
      .attr("perm", AttributeKind::Ints)
      .moves(MovementKind::Permutation, readTranspose);
  define(registry, "Expand", 8)
      .in("input")
      .in("shape")
      .out("output")
      .moves(MovementKind::Broadcast, readExpand);
  define(registry, "Tile", 6)
      .in("input")
      .in("repeats")
      .out("output")
      .moves(MovementKind::Repeat, readTile);
}

} // namespace kvopt::ir
