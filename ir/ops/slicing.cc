// Operators that cut and join along axes: Concat, Split, Slice.
#include "ir/shapes/shape_rules.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cstdint>

namespace kvopt::ir {
namespace {

void readConcat(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& type =
      result.type().hasRank() ? result.type() : node.operand(movement.data)->type();
  if (type.hasRank())
    movement.axes = axesWithin({node.intAttr("axis", type.rank())}, type.rank());
}

// Each part begins at the end of the previous one.
void readSplit(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  if (data.hasRank())
    movement.axes = axesWithin({node.intAttr("axis", 0)}, data.rank());
  if (!movement.axes)
    return;
  const unsigned axis = *movement.axis();
  Dim start = Dim::fixed(0);
  for (unsigned part = 0; part < result.resultIndex(); ++part)
    start = start + node.result(part).type().dim(axis);
  movement.ranges.push_back({{start}, {start + result.type().dim(axis)}, {Dim::fixed(1)}});
}

// Starts, ends or steps of a Slice, from an attribute or an operand.
class SliceNumbers {
public:
  SliceNumbers(const Node& node, const char* attribute, unsigned operand)
      : written(node.intsAttr(attribute)), list(node.operand(operand)),
        known(list ? list->knownIntegers() : std::nullopt) {}

  bool isGiven() const { return written || list; }
  std::optional<size_t> count() const {
    if (written)
      return written->size();
    if (known)
      return known->size();
    std::optional<int64_t> length =
        list && list->type().hasRank() ? list->type().dim(0).value() : std::nullopt;
    return length && *length >= 0 ? std::optional<size_t>(*length) : std::nullopt;
  }
  MovementNumber at(size_t entry) const {
    if (written)
      return {Dim::fixed((*written)[entry])};
    return {known ? (*known)[entry] : Dim::unknown(), list, static_cast<unsigned>(entry)};
  }

private:
  std::optional<llvm::ArrayRef<int64_t>> written;
  const Value* list;
  std::optional<llvm::SmallVector<Dim, 4>> known;
};

// Converts a known start or end to an index in an axis of that extent, between `lowest` and
// `highest`.
void placeWithin(MovementNumber& number, int64_t extent, int64_t lowest, int64_t highest) {
  if (std::optional<int64_t> index = number.known.value())
    number.known = Dim::fixed(std::clamp(*index < 0 ? *index + extent : *index, lowest, highest));
}

void readSlice(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  if (!data.hasRank())
    return;
  const SliceNumbers starts(node, "starts", 1), ends(node, "ends", 2), steps(node, "steps", 4);
  std::optional<size_t> count = starts.count();
  auto listed = knownIntegersOf(node, 3, "axes");
  if (!listed && !node.operand(3) && count && *count <= size_t{data.rank()}) {
    listed.emplace();
    for (size_t axis = 0; axis < *count; ++axis)
      listed->push_back(static_cast<int64_t>(axis));
  }
  if (!listed)
    return;
  for (const SliceNumbers* numbers : {&starts, &ends, &steps})
    if (numbers->isGiven() && numbers->count().value_or(listed->size()) != listed->size())
      return;
  movement.axes = axesWithin(*listed, data.rank());
  for (size_t i = 0; movement.axes && i < listed->size(); ++i) {
    MovementRange range{starts.at(i), ends.at(i),
                        steps.isGiven() ? steps.at(i) : MovementNumber{Dim::fixed(1)}};
    std::optional<int64_t> extent = data.shape()[(*movement.axes)[i]].value();
    std::optional<int64_t> step = range.step.known.value();
    if (extent && step && (*extent > 0 || *step > 0)) {
      placeWithin(range.start, *extent, 0, *step > 0 ? *extent : *extent - 1);
      if (*step > 0)
        placeWithin(range.end, *extent, 0, *extent);
    }
    movement.ranges.push_back(std::move(range));
  }
}

} // namespace

void register_slicing(OpRegistry& registry) {
  define(registry, "Concat", 1)
      .in("inputs+")
      .out("concat_result")
      .attr("axis", int64_t{1})
      .moves(MovementKind::Concat, readConcat);
  define(registry, "Concat", 4)
      .in("inputs+")
      .out("concat_result")
      .requiredAttr("axis", AttributeKind::Int)
      .moves(MovementKind::Concat, readConcat);
  define(registry, "Split", 2)
      .in("input")
      .out("outputs+")
      .attr("axis", int64_t{0})
      .attr("split", AttributeKind::Ints)
      .moves(MovementKind::Slice, readSplit);
  define(registry, "Split", 13)
      .in("input")
      .in("split?")
      .out("outputs+")
      .attr("axis", int64_t{0})
      .moves(MovementKind::Slice, readSplit);
  define(registry, "Split", 18)
      .in("input")
      .in("split?")
      .out("outputs+")
      .attr("axis", int64_t{0})
      .attr("num_outputs", AttributeKind::Int)
      .moves(MovementKind::Slice, readSplit);
  define(registry, "Slice", 1)
      .in("data")
      .out("output")
      .attr("axes", AttributeKind::Ints)
      .requiredAttr("starts", AttributeKind::Ints)
      .requiredAttr("ends", AttributeKind::Ints)
      .moves(MovementKind::Slice, readSlice);
  define(registry, "Slice", 10)
      .in("data")
      .in("starts")
      .in("ends")
      .in("axes?")
      .in("steps?")
      .out("output")
      .moves(MovementKind::Slice, readSlice);
}

} // namespace kvopt::ir
