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

MaskReader::Window MaskReader::windowOf(const Node& node, unsigned axis) {
  const TensorType& type = node.operand(0)->type();
  Window whole{Dim::fixed(0), modelDim(type.shape()[axis]), 1, true};
  Window none{Dim::unknown(), Dim::unknown(), 0, false};
  unsigned rank = type.rank();
  auto positionOf = [&](llvm::ArrayRef<int64_t> axes) -> int64_t {
    for (size_t k = 0; k < axes.size(); ++k)
      if (normalizedAxis(axes[k], rank) == axis)
        return static_cast<int64_t>(k);
    return -1;
  };
  Window window;
  if (auto starts = node.intsAttr("starts")) { // before opset 10
    auto ends = node.intsAttr("ends");
    auto axes = node.intsAttr("axes");
    int64_t position = axes                    ? positionOf(*axes)
                       : axis < starts->size() ? static_cast<int64_t>(axis)
                                               : -1;
    if (position < 0)
      return whole;
    auto at = static_cast<size_t>(position);
    if (!ends || at >= starts->size() || at >= ends->size())
      return none;
    window = {Dim::fixed((*starts)[at]), Dim::fixed((*ends)[at]), 1, false};
  } else {
    const Value* startList = node.operand(1);
    if (!startList || !startList->type().hasRank())
      return none;
    int64_t position = -1;
    if (node.operand(3)) {
      auto axes = constants(node.operand(3));
      if (!axes)
        return none;
      position = positionOf(*axes);
    } else {
      auto count = startList->type().dim(0).value();
      if (!count)
        return none;
      position = axis < *count ? static_cast<int64_t>(axis) : -1;
    }
    if (position < 0)
      return whole;
    auto start = integerAt(startList, position);
    auto end = integerAt(node.operand(2), position);
    auto step = node.operand(4) ? integerAt(node.operand(4), position) : Dim::fixed(1);
    if (!start || !step || !step->value() || *step->value() < 1)
      return none;
    window = {*start, end.value_or(Dim::unknown()), *step->value(), false};
  }
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

Dim MaskReader::slicedExtent(const Node& node, unsigned axis, unsigned depth) {
  Window window = windowOf(node, axis);
  const Dim extent = extentOf(*node.operand(0), axis, depth + 1);
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
  if (!declared.isUnknown() || !node || !node->op().isOnnx() || depth == maxDepth)
    return declared;
  llvm::StringRef op = node->op().type();
  unsigned rank = value.type().rank();
  auto isSameRank = [&](const Value* operand) {
    return operand && operand->type().hasRank() && operand->type().rank() == rank;
  };
  if (op == "Tile" && isSameRank(node->operand(0))) {
    auto repeats = integerAt(node->operand(1), axis);
    return repeats && isOne(*repeats) ? extentOf(*node->operand(0), axis, depth + 1) : declared;
  }
  if (op == "Expand" && node->operand(1) && node->operand(1)->type().dim(0).value() == rank) {
    auto target = integerAt(node->operand(1), axis);
    bool isMasks = target && (target->isKnownEqual(space().extent(IndexVariable::Key)) ||
                              target->isKnownEqual(space().extent(IndexVariable::Row)));
    return isMasks ? *target : declared;
  }
  if (op == "Transpose" && isSameRank(node->operand(0))) {
    auto permutation = node->intsAttr("perm");
    auto from = permutation && permutation->size() == rank
                    ? normalizedAxis((*permutation)[axis], rank)
                    : std::nullopt;
    return from ? extentOf(*node->operand(0), *from, depth + 1) : declared;
  }
  if (op == "ScatterND" && isSameRank(node->operand(0)))
    return extentOf(*node->operand(0), axis, depth + 1);
  if (op == "Slice")
    return isSameRank(node->operand(0)) ? slicedExtent(*node, axis, depth) : declared;
  if (op == "Range" && node->operands().size() == 3 && holdsIndices(value.type().elementType())) {
    auto start = integerAt(node->operand(0), 0), limit = integerAt(node->operand(1), 0);
    auto step = integerAt(node->operand(2), 0);
    return start && limit && step && isOne(*step) ? *limit - *start : declared;
  }
  if (op == "CumSum" && isSameRank(node->operand(0)))
    return extentOf(*node->operand(0), axis, depth + 1);
  if (op == "Unsqueeze" && node->operand(0) && node->operand(0)->type().hasRank()) {
    auto isExtra = extraAxes(*node, true);
    if (!isExtra || isExtra->size() != rank)
      return declared;
    auto before =
        static_cast<unsigned>(llvm::count(llvm::makeArrayRef(*isExtra).take_front(axis), false));
    if ((*isExtra)[axis] || before >= node->operand(0)->type().rank())
      return (*isExtra)[axis] ? Dim::fixed(1) : declared;
    return extentOf(*node->operand(0), before, depth + 1);
  }
  if (op == "Concat" && normalizedAxis(node->intAttr("axis", 0), rank) == axis) {
    Dim sum = Dim::fixed(0);
    for (const Use& use : node->operands())
      sum =
          isSameRank(use.value()) ? sum + extentOf(*use.value(), axis, depth + 1) : Dim::unknown();
    return sum;
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

bool MaskReader::assumptionsHold() const {
  return llvm::all_of(assumed, [&](const Bound& bound) {
    return llvm::any_of(granted, [&](const Bound& grant) {
      return bound.smaller.isKnownLessEqual(grant.smaller) &&
             grant.larger.isKnownLessEqual(bound.larger);
    });
  });
}

} // namespace kvopt::analysis
