// Reading of masks: extents, also where only the operators that compute a tensor give them.
#include "passes/analysis/mask/mask_reader.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace kvopt::analysis {
using namespace ir;

using Kind = MaskExpression::Kind;

namespace {

bool isOne(const Dim& extent) { return extent.value() == 1; }

} // namespace

std::optional<Dim> MaskReader::numberOf(const MovementNumber& number) {
  if (Dim known = modelDim(number.known); !known.isUnknown())
    return known;
  return integerAt(number.list, number.entry);
}

bool MaskReader::isRepeatedOnce(const Movement& movement, unsigned axis) {
  std::optional<Dim> count =
      axis < movement.counts.size() ? numberOf(movement.counts[axis]) : std::nullopt;
  return count && isOne(*count);
}

MaskReader::Window MaskReader::windowOf(const Movement& movement, const Value& data,
                                        unsigned axis) {
  Window whole{Dim::fixed(0), modelDim(data.type().shape()[axis]), 1, true};
  Window none{Dim::unknown(), Dim::unknown(), 0, false};
  if (!movement.axes)
    return none;
  const auto* found = llvm::find(*movement.axes, axis);
  if (found == movement.axes->end())
    return whole;
  const MovementRange& range = movement.ranges[found - movement.axes->begin()];
  auto start = numberOf(range.start);
  auto end = numberOf(range.end);
  auto step = numberOf(range.step);
  if (!start || !step || !step->value() || *step->value() < 1)
    return none;
  Window window{*start, end.value_or(Dim::unknown()), *step->value(), false};
  auto fromEnd = [&](Dim& bound) {
    if (!space().isNonNegative(-bound - Dim::fixed(1)))
      return;
    bound = bound + whole.end;
  };
  fromEnd(window.start);
  fromEnd(window.end);
  // An element exists, so a start within or beyond the extent was not moved; one before 0 was.
  if (!space().isNonNegative(window.start))
    return none;
  return window;
}

Dim MaskReader::slicedExtent(const Movement& movement, const Value& data, unsigned axis,
                             unsigned depth) {
  Window window = windowOf(movement, data, axis);
  const Dim extent = extentOf(data, axis, depth + 1);
  if (window.isWhole)
    return extent;
  if (window.step != 1 || window.end.isUnknown() || extent.isUnknown() ||
      !space().isNonNegative(window.end - window.start))
    return Dim::unknown();
  if (!space().isNonNegative(extent - window.end)) {
    if (!mayAssume || !extent.value())
      return Dim::unknown();
    assumed.push_back({window.end, extent});
  }
  return window.end - window.start;
}

Dim MaskReader::extentOf(const Value& value, unsigned axis, unsigned depth) {
  constexpr unsigned maxDepth = 12;
  if (!value.type().hasRank() || axis >= value.type().rank())
    return Dim::unknown();
  Dim declared = modelDim(value.type().shape()[axis]);
  const Node* node = value.producer();
  if (!declared.isUnknown() || !node || depth == maxDepth)
    return declared;
  std::optional<MovementKind> kind = movementKind(*node);
  if (kind && kind != MovementKind::Same && kind != MovementKind::Convert)
    return movedExtent(value, axis, depth).value_or(declared);
  if (!node->op().isOnnx())
    return declared;
  llvm::StringRef op = node->op().type();
  unsigned rank = value.type().rank();
  const Value* first = node->operand(0);
  if ((op == "ScatterND" || op == "CumSum") && first && first->type().hasRank() &&
      first->type().rank() == rank)
    return extentOf(*first, axis, depth + 1);
  if (op == "Range" && node->operands().size() == 3 && holdsIndices(value.type().elementType())) {
    auto start = integerAt(node->operand(0), 0), limit = integerAt(node->operand(1), 0);
    auto step = integerAt(node->operand(2), 0);
    return start && limit && step && isOne(*step) ? *limit - *start : declared;
  }
  bool isElementwise = llvm::StringSwitch<bool>(op)
                           .Cases("Where", "And", "Or", "Not", "Cast", "Add", "Sub", "Mul", true)
                           .Cases("Identity", "Neg", "Xor", "Max", "Min", "Div", true)
                           .Cases("Equal", "Less", "LessOrEqual", "Greater", true)
                           .Cases("GreaterOrEqual", "Clip", "Pow", true)
                           .Default(false);
  if (!isElementwise)
    return declared;
  Dim extent = Dim::fixed(1);
  bool isCommon = true;
  for (const Use& use : node->operands()) {
    if (!use.value() || !use.value()->type().hasRank() || use.value()->type().rank() > rank)
      return declared;
    unsigned skipped = rank - use.value()->type().rank();
    if (axis < skipped)
      continue;
    Dim own = extentOf(*use.value(), axis - skipped, depth + 1);
    // Next to T (or S) any other extent is T (or S), or 1; where T is 1, the only index is 0, and
    // other extents do not matter to who reads there.
    if (own.isKnownEqual(space().extent(IndexVariable::Key)) ||
        own.isKnownEqual(space().extent(IndexVariable::Row)))
      return own;
    if (isOne(own))
      continue;
    isCommon &= !own.isUnknown() && (isOne(extent) || extent.isKnownEqual(own));
    extent = own;
  }
  return isCommon ? extent : declared;
}

std::optional<Dim> MaskReader::movedExtent(const Value& value, unsigned axis, unsigned depth) {
  const Node& node = *value.producer();
  const Movement movement = *movementOf(value);
  const Value& data = *node.operand(movement.data);
  const unsigned rank = value.type().rank();
  auto isSameRank = [&](const Value* operand) {
    return operand && operand->type().hasRank() && operand->type().rank() == rank;
  };
  switch (movement.kind) {
  case MovementKind::Permutation:
    if (!movement.axes || !isSameRank(&data))
      return std::nullopt;
    return extentOf(data, (*movement.axes)[axis], depth + 1);
  case MovementKind::InsertAxes: {
    if (!movement.axes || !data.type().hasRank())
      return std::nullopt;
    if (llvm::is_contained(*movement.axes, axis))
      return Dim::fixed(1);
    auto inserted = llvm::count_if(*movement.axes, [&](unsigned other) { return other < axis; });
    return extentOf(data, axis - static_cast<unsigned>(inserted), depth + 1);
  }
  case MovementKind::Broadcast: {
    auto target = movement.counts.empty() ? std::nullopt : numberOf(movement.counts[axis]);
    bool isMasks = target && (target->isKnownEqual(space().extent(IndexVariable::Key)) ||
                              target->isKnownEqual(space().extent(IndexVariable::Row)));
    return isMasks ? target : std::nullopt;
  }
  case MovementKind::Repeat:
    if (!isSameRank(&data) || !isRepeatedOnce(movement, axis))
      return std::nullopt;
    return extentOf(data, axis, depth + 1);
  case MovementKind::Slice:
    if (!isSameRank(&data))
      return std::nullopt;
    return slicedExtent(movement, data, axis, depth);
  case MovementKind::Concat: {
    if (movement.axis() != axis)
      return std::nullopt;
    Dim sum = Dim::fixed(0);
    for (const Use& use : node.operands().drop_front(movement.data))
      sum =
          isSameRank(use.value()) ? sum + extentOf(*use.value(), axis, depth + 1) : Dim::unknown();
    return sum;
  }
  case MovementKind::Same:
  case MovementKind::Convert:
  case MovementKind::Reshape:
  case MovementKind::RemoveAxes:
  case MovementKind::Gather:
  case MovementKind::PointGather:
    return std::nullopt;
  }
  return std::nullopt;
}

bool MaskReader::assumptionsHold() const {
  return llvm::all_of(assumed, [&](const Bound& bound) {
    return llvm::any_of(granted, [&](const Bound& grant) {
      return bound.smaller.isKnownLessEqual(grant.smaller) &&
             grant.larger.isKnownLessEqual(bound.larger);
    });
  });
}

} // namespace kvopt::analysis
