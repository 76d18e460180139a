// Movements whose indices are affine in extents.
#include "passes/analysis/evaluation/affine_movements.h"
#include "passes/analysis/evaluation/affine_order.h"
#include "passes/analysis/evaluation/selected_result.h"
#include "passes/analysis/evaluation/step_evaluations.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// From this number on, a bound of a slice is past the end of any axis.
constexpr int64_t unlimited = 2147483647;

enum BoundSide : unsigned { BeforeAxis = 1, FromEnd = 2, WithinAxis = 4, BeyondAxis = 8 };

/// One end of a range of an axis.
struct SliceBound {
  MovementNumber number;
  Dim extent; ///< extent of the axis
  NumberBounds bounds;

  std::optional<int64_t> value() const { return number.known.value(); }
  bool isUnlimited() const { return value() && (*value() >= unlimited || *value() <= -unlimited); }
  bool isNonNegative() const {
    return bounds.low >= 0 || bounds.least.isKnownNonNegative() ||
           number.known.isKnownNonNegative();
  }
  /// The possible sides, as bits.
  unsigned sides() const {
    const std::optional<int64_t> fixed = value();
    if (fixed && *fixed >= unlimited)
      return BeyondAxis;
    if (fixed && *fixed <= -unlimited)
      return BeforeAxis;
    if (isNonNegative())
      return number.known.isKnownLessEqual(extent) || bounds.most.isKnownLessEqual(extent)
                 ? WithinAxis
                 : WithinAxis | BeyondAxis;
    if (fixed)
      return Dim::fixed(-*fixed).isKnownLessEqual(extent) ? FromEnd : FromEnd | BeforeAxis;
    return BeforeAxis | FromEnd | WithinAxis | BeyondAxis;
  }
  std::optional<double> at(Evaluation& evaluation) const {
    const auto known = number.known.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
      const auto entry = evaluation.point().extents.find(symbol);
      return entry == evaluation.point().extents.end() ? std::nullopt
                                                       : std::optional(entry->second);
    });
    if (known)
      return static_cast<double>(*known);
    const NumberTensor* list = number.list ? evaluation.numbers(*number.list) : nullptr;
    return list && number.entry < list->numbers.size() ? std::optional(list->numbers[number.entry])
                                                       : std::nullopt;
  }
};

std::optional<double> extentOf(const Value& data, unsigned axis, Evaluation& evaluation) {
  const Extents* extents = evaluation.extents(data);
  return extents && axis < extents->size() ? std::optional(static_cast<double>((*extents)[axis]))
                                           : std::nullopt;
}

Breakpoint boundBreakpoint(const Node& node, const Value& data, unsigned axis,
                           const SliceBound& bound, bool isStart) {
  Breakpoint breakpoint;
  breakpoint.node = &node;
  const unsigned possible = bound.sides();
  const Dim place = bound.number.known, extent = bound.extent, one = Dim::fixed(1);
  breakpoint.sides = {
      {isStart ? "started before its axis" : "ended before its axis",
       false,
       {-place - extent - one}},
      {isStart ? "started from the end of its axis" : "ended from the end of its axis",
       false,
       {place + extent, -place - one}},
      {isStart ? "started within its axis" : "ended within its axis",
       false,
       {place, extent - place}},
      {isStart ? "started past its axis" : "ended past its axis", false, {place - extent - one}}};
  for (unsigned i = 0; i < 4; ++i)
    breakpoint.sides[i].isPossible = (possible >> i & 1U) != 0;
  breakpoint.seen = [bound, axis, &data](Evaluation& at) -> unsigned {
    const auto number = bound.at(at);
    const auto last = extentOf(data, axis, at);
    if (!number || !last)
      return 0;
    return *number < -*last  ? BeforeAxis
           : *number < 0     ? FromEnd
           : *number > *last ? BeyondAxis
                             : WithinAxis;
  };
  return breakpoint;
}

/// Whether a range with these ends may be empty because they cross.
bool mayBeReversed(const SliceBound& start, const SliceBound& end) {
  if (end.value() && *end.value() >= unlimited)
    return false;
  if (start.value() == 0)
    return false;
  const Dim length = end.number.known - start.number.known;
  const bool sameSign = (start.isNonNegative() && end.isNonNegative()) ||
                        (start.value().value_or(0) < 0 && end.value().value_or(0) < 0);
  return !(sameSign && !length.isUnknown() && length.isKnownNonNegative());
}

Breakpoint lengthBreakpoint(const Node& node, const Value& data, unsigned axis,
                            const SliceBound& start, const SliceBound& end) {
  Breakpoint breakpoint;
  breakpoint.node = &node;
  breakpoint.sides = {{"ended before its start", true, {}}, {"ended after its start", true, {}}};
  breakpoint.seen = [start, end, axis, &data](Evaluation& at) -> unsigned {
    const auto last = extentOf(data, axis, at);
    auto first = start.at(at), limit = end.at(at);
    if (!first || !limit || !last)
      return 0;
    for (auto* bound : {&first, &limit})
      *bound = std::clamp(**bound < 0 ? **bound + *last : **bound, 0.0, *last);
    return *limit < *first ? 1U : *limit > *first ? 2U : 0U;
  };
  return breakpoint;
}

/// Number of elements after each axis.
llvm::SmallVector<Dim, 6> suffixProducts(llvm::ArrayRef<Dim> shape) {
  llvm::SmallVector<Dim, 6> products;
  Dim product = Dim::fixed(1);
  for (const Dim& extent : llvm::reverse(shape)) {
    product = product * extent;
    products.push_back(product);
  }
  return products;
}

bool divides(const Dim& one, const Dim& other) { return other.dividedBy(one).has_value(); }

/// Whether each axis of one shape is a part of an axis of the other, or the reverse.
bool areAligned(llvm::ArrayRef<Dim> from, llvm::ArrayRef<Dim> to) {
  for (const Dim& one : suffixProducts(from))
    for (const Dim& other : suffixProducts(to))
      if (one.isUnknown() || other.isUnknown() || (!divides(one, other) && !divides(other, one)))
        return false;
  return true;
}

void walkRange(const Node& node, const Value& data, unsigned axis, const MovementRange& range,
               AffineNumbers& numbers) {
  if (range.step.known.value().value_or(0) == 0) {
    numbers.breakAt(&node, "its step is not known");
    return;
  }
  SliceBound start{range.start, data.type().dim(axis)};
  SliceBound end{range.end, data.type().dim(axis)};
  for (SliceBound* bound : {&start, &end})
    if (bound->number.known.isUnknown()) {
      if (!bound->number.list) {
        numbers.breakAt(&node, "its bounds are not known");
        return;
      }
      bound->bounds = numbers.walk(*bound->number.list);
    } else if (!isAffine(bound->number.known)) {
      numbers.breakAt(&node, "a bound is a product of lengths");
    }
  // Fixed indices of a fixed axis are the same at all sizes.
  const bool isFixed = start.value() && end.value() && start.extent.value();
  if (numbers.ended() || isFixed)
    return;
  if (*range.step.known.value() < 0 && !(start.isUnlimited() && end.isUnlimited()) &&
      !(start.value() == -1 && end.isUnlimited())) {
    numbers.breakAt(&node, "it runs backwards from an index that depends on lengths");
    return;
  }
  for (const SliceBound* bound : {&start, &end})
    if (bound->value() && !bound->isUnlimited())
      numbers.nameRows(std::abs(*bound->value()));
  auto mayStayUnseen = [&](const SliceBound& bound) {
    if (bound.number.known.isUnknown())
      return numbers.dependsOnInputs(*bound.number.list);
    // Only a step without tokens has less than one row.
    const int64_t most = bound.extent.isUnknown() ? StepEvaluations::mostRowsTried : 1;
    return bound.value() && std::abs(*bound.value()) <= most;
  };
  auto add = [&](Breakpoint breakpoint, bool isSoft) {
    breakpoint.mayStayUnseen = isSoft;
    numbers.add(std::move(breakpoint));
  };
  const bool isSoftStart = mayStayUnseen(start), isSoftEnd = mayStayUnseen(end);
  add(boundBreakpoint(node, data, axis, start, /*isStart=*/true), isSoftStart);
  add(boundBreakpoint(node, data, axis, end, /*isStart=*/false), isSoftEnd);
  if (*range.step.known.value() > 0 && mayBeReversed(start, end))
    add(lengthBreakpoint(node, data, axis, start, end), isSoftStart || isSoftEnd);
}

void walkSlice(const Value& result, const Movement& movement, AffineNumbers& numbers) {
  const Node& node = *result.producer();
  const Value& data = *node.operand(movement.data);
  if (!movement.axes || movement.axes->size() != movement.ranges.size() || !data.type().hasRank()) {
    numbers.breakAt(&node, "the axes that it cuts are not known");
    return;
  }
  bool isFixed = true;
  for (const auto& pair : llvm::zip(*movement.axes, movement.ranges)) {
    walkRange(node, data, std::get<0>(pair), std::get<1>(pair), numbers);
    for (const MovementNumber* number : {&std::get<1>(pair).start, &std::get<1>(pair).end})
      isFixed &= number->known.value().has_value();
  }
  walkLookUp(node, data, isFixed, numbers);
}

void walkReshape(const Value& result, AffineNumbers& numbers) {
  const Node& node = *result.producer();
  const TensorType& from = movedOperand(node)->type();
  const TensorType& to = result.type();
  if (from.hasRank() && to.hasRank() && areAligned(from.shape(), to.shape()))
    return;
  // Without symbols the indices are the same at all sizes.
  const bool isFixed =
      from.hasRank() && to.hasRank() && from.elementCount().value() && to.elementCount().value();
  if (!isFixed)
    numbers.gapAt(&node, "its axes are not known to be joined or cut at whole axes");
}

void walkRepeat(const Value& result, AffineNumbers& numbers) {
  const Node& node = *result.producer();
  const TensorType& from = movedOperand(node)->type();
  const TensorType& to = result.type();
  if (!from.hasRank() || !to.hasRank() || from.rank() != to.rank()) {
    numbers.gapAt(&node, "the part that it repeats is not known");
    return;
  }
  for (unsigned axis = 0; axis < from.rank(); ++axis) {
    const Dim &before = from.dim(axis), &after = to.dim(axis);
    if (before.value() != 1 && !before.isKnownEqual(after) && !(before.value() && after.value()))
      numbers.gapAt(&node, "it repeats an axis whose extent or count depends on lengths");
  }
}

} // namespace

void walkLookUp(const Node& node, const Value& table, bool isByConstant, AffineNumbers& numbers) {
  if (numbers.ended() || isByConstant || numbers.at().isData(table))
    return;
  const NumberBounds bounds = numbers.walk(table);
  if (!bounds.isFixed || bounds.isUniform())
    return;
  const NumberTensor* entries = numbers.at().numbers(table);
  const size_t count = entries ? entries->numbers.size() : 0;
  bool isProgression = entries && entries->extents.size() == 1;
  for (size_t i = 2; isProgression && i < count; ++i)
    isProgression =
        entries->numbers[i] - entries->numbers[i - 1] == entries->numbers[1] - entries->numbers[0];
  if (!isProgression)
    numbers.breakAt(&node, "it looks up a table by numbers that depend on lengths or inputs");
}

void walkMovement(const Value& result, AffineNumbers& numbers) {
  const Node& node = *result.producer();
  const std::optional<Movement> movement = movementOf(result);
  if (!movement) {
    numbers.breakAt(&node, "its movement of elements is not known");
    return;
  }
  if (movement->is(MovementKind::Reshape)) {
    walkReshape(result, numbers);
    return;
  }
  for (unsigned i = 0; i < node.operands().size() && !movement->is(MovementKind::Concat); ++i)
    if (i != movement->data && node.operand(i) && !movement->is(MovementKind::Convert))
      numbers.walk(*node.operand(i));
  switch (movement->kind) {
  case MovementKind::Slice:
    walkSlice(result, *movement, numbers);
    break;
  case MovementKind::Gather:
  case MovementKind::PointGather:
    numbers.indexBy(node, *node.operand(movement->indices));
    walkLookUp(node, *node.operand(movement->data),
               numbers.walk(*node.operand(movement->indices)).isFixed, numbers);
    break;
  case MovementKind::Repeat:
    walkRepeat(result, numbers);
    break;
  default:
    break;
  }
}

} // namespace kvopt::analysis
