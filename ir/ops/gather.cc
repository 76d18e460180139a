// Operators that select elements by index: Gather, GatherElements, GatherND, TopK, ArgMax, NonZero,
// OneHot.
#include "ir/op.h"

namespace kvopt::ir {
namespace {

void readGather(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  if (data.hasRank())
    movement.axes = axesWithin({node.intAttr("axis", 0)}, data.rank());
}

// Without batch axes: the last axis of the indices has one entry for each of the first axes of the
// data.
void readGatherND(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  const Value* indices = node.operand(1);
  if (node.intAttr("batch_dims", 0) != 0 || !data.hasRank() || !indices)
    return;
  const int64_t width = indices->type().dim(-1).value().value_or(0);
  if (width < 1 || width > int64_t{data.rank()})
    return;
  movement.axes.emplace();
  for (unsigned axis = 0; axis < width; ++axis)
    movement.axes->push_back(axis);
}

} // namespace

void register_gather(OpRegistry& registry) {
  define(registry, "Gather", 1)
      .in("data")
      .in("indices")
      .out("output")
      .attr("axis", int64_t{0})
      .moves(MovementKind::Gather, readGather);
  define(registry, "GatherElements", 11)
      .in("data")
      .in("indices")
      .out("output")
      .attr("axis", int64_t{0});
  define(registry, "GatherND", 11)
      .in("data")
      .in("indices")
      .out("output")
      .attr("batch_dims", int64_t{0})
      .moves(MovementKind::PointGather, readGatherND);
  define(registry, "TopK", 1)
      .in("X")
      .out("Values")
      .out("Indices")
      .attr("axis", int64_t{-1})
      .requiredAttr("k", AttributeKind::Int);
  define(registry, "TopK", 10)
      .in("X")
      .in("K")
      .out("Values")
      .out("Indices")
      .attr("axis", int64_t{-1})
      .attr("largest", int64_t{1})
      .attr("sorted", int64_t{1});
  for (const char* name : {"ArgMax", "ArgMin"}) {
    define(registry, name, 1)
        .in("data")
        .out("reduced")
        .attr("axis", int64_t{0})
        .attr("keepdims", int64_t{1});
    define(registry, name, 12)
        .in("data")
        .out("reduced")
        .attr("axis", int64_t{0})
        .attr("keepdims", int64_t{1})
        .attr("select_last_index", int64_t{0});
  }
  define(registry, "NonZero", 9).in("X").out("Y");
  define(registry, "OneHot", 9)
      .in("indices")
      .in("depth")
      .in("values")
      .out("output")
      .attr("axis", int64_t{-1});
}

} // namespace kvopt::ir
