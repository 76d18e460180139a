// Numbers that are affine in extents, and their breakpoints.
#include "passes/analysis/evaluation/affine_numbers.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "passes/analysis/evaluation/affine_movements.h"
#include "passes/analysis/evaluation/affine_order.h"
#include "passes/analysis/evaluation/number_operators.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr unsigned mostWalkDepth = 1500;

bool isWhole(const Value& value) {
  const ElementType type = value.type().elementType();
  return isInteger(type) || type == ElementType::Bool;
}

/// The sides `false` and `true` of a boolean result.
Breakpoint outcomesOf(const Node& node, const Value& truth, bool mayBeFalse, bool mayBeTrue) {
  Breakpoint breakpoint;
  breakpoint.node = &node;
  breakpoint.sides = {{"false", mayBeFalse, {}}, {"true", mayBeTrue, {}}};
  breakpoint.seen = [&truth](Evaluation& at) {
    unsigned sides = 0;
    if (const NumberTensor* numbers = at.numbers(truth))
      for (double number : numbers->numbers)
        sides |= number == 0 ? 1U : 2U;
    return sides;
  };
  return breakpoint;
}

/// Range of the integers that a type represents, as far as lengths need them. Float counts as
/// representing all: it is exact up to 2^24.
std::pair<double, double> wholeNumbersOf(ElementType type) {
  switch (type) {
  case ElementType::Int8:
    return {-128, 127};
  case ElementType::UInt8:
    return {0, 255};
  case ElementType::Int16:
    return {-32768, 32767};
  case ElementType::UInt16:
    return {0, 65535};
  case ElementType::Float16:
    return {-2048, 2048};
  case ElementType::BFloat16:
    return {-256, 256};
  default:
    return {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  }
}

/// The value from which a condition is moved or negated.
const Value& truthBehind(const Value& condition) {
  const Value* value = &condition;
  while (const Node* node = value->producer()) {
    const auto moves = movementKind(*node);
    const bool keepsAll = moves && (keepsOrder(*moves) || *moves == MovementKind::Permutation ||
                                    *moves == MovementKind::Broadcast);
    if (!keepsAll && !node->is("Not"))
      break;
    value = keepsAll ? movedOperand(*node) : node->operand(0);
  }
  return *value;
}

} // namespace

NumberBounds AffineNumbers::walk(const Value& value) {
  if (broken)
    return {};
  const auto done = walked.find(&value);
  if (done != walked.end())
    return done->second;
  if (++depth > mostWalkDepth)
    breakAt(value.producer(), "too many operators");
  NumberBounds bounds = broken ? NumberBounds() : compute(value);
  --depth;
  bounds.isIntegral |= isWhole(value);
  walked[&value] = bounds;
  return bounds;
}

NumberBounds AffineNumbers::boundsOf(const Value& value) {
  NumberBounds bounds;
  bounds.isFixed = true;
  bounds.isIntegral = isWhole(value);
  const NumberTensor* numbers = evaluation.numbers(value);
  if (!numbers || numbers->numbers.empty())
    return bounds;
  const auto [low, high] = std::minmax_element(numbers->numbers.begin(), numbers->numbers.end());
  bounds.low = *low;
  bounds.high = *high;
  setLimits(bounds);
  bounds.isIntegral |= llvm::all_of(numbers->numbers, [](double x) { return x == std::floor(x); });
  return bounds;
}

std::optional<NumberBounds> AffineNumbers::known(const Value& value) {
  const auto elements = value.knownIntegers();
  if (!elements || elements->empty() || value.constant() ||
      llvm::any_of(*elements, [](const Dim& dim) { return dim.isUnknown(); }))
    return std::nullopt;
  NumberBounds bounds;
  bounds.isIntegral = bounds.isFixed = true;
  double low = NumberBounds::largest, high = -NumberBounds::largest;
  for (const Dim& element : *elements) {
    if (!isAffine(element)) {
      breakAt(value.producer(), formatted("{} is a product of lengths", element.str()));
      return bounds;
    }
    const std::optional<int64_t> number = element.value();
    bounds.isFixed &= number.has_value();
    const bool isFirst = &element == elements->begin();
    bounds.least = isFirst ? element : leastOf(bounds.least, element);
    bounds.most = isFirst ? element : greatestOf(bounds.most, element);
    const double least = element.isKnownNonNegative() ? 0 : -NumberBounds::largest;
    low = std::min(low, number ? static_cast<double>(*number) : least);
    high = std::max(high, number ? static_cast<double>(*number) : NumberBounds::largest);
  }
  bounds.low = low;
  bounds.high = high;
  return bounds;
}

NumberBounds AffineNumbers::compute(const Value& value) {
  if (value.constant())
    return boundsOf(value);
  if (evaluation.point().inputs.count(&value))
    return between(0, value.type().elementType() == ElementType::Bool ? 1 : NumberBounds::largest,
                   isWhole(value));
  const Node* node = value.producer();
  if (!node || value.graph().parentNode() || !node->subgraphs().empty()) {
    breakAt(node, node ? "branches and loops are not followed"
                       : formatted("'{}' is not an input that is fed", value.name()));
    return {};
  }
  if (auto integers = known(value))
    return *integers;
  if (node->is("Shape")) {
    const TensorType& type = node->operand(0)->type();
    if (!type.hasRank() ||
        llvm::any_of(type.shape(), [](const Dim& dim) { return dim.isUnknown(); }))
      gapAt(node, "an extent is not known to be a sum of lengths");
    else if (!llvm::all_of(type.shape(), isAffine))
      breakAt(node, "an extent is a product of lengths");
    return between(0, NumberBounds::largest, true);
  }
  llvm::SmallVector<NumberBounds, 4> operands;
  // A shape to which axes are joined or cut is compared with the extents instead.
  const bool readsTypeOnly = node->is("CastLike") || movementKind(*node) == MovementKind::Reshape;
  for (const Use& use : node->operands())
    operands.push_back(use.value() && !(readsTypeOnly && !operands.empty()) ? walk(*use.value())
                                                                            : NumberBounds());
  if (broken)
    return {};
  bool isFixed = !operands.empty();
  for (auto [use, bounds] : llvm::zip(node->operands(), operands))
    isFixed &= !use.value() || bounds.isFixed;
  if (isFixed)
    return boundsOf(value);
  return apply(value, operands);
}

bool AffineNumbers::dependsOnInputs(const Value& value) {
  if (evaluation.point().inputs.count(&value))
    return true;
  const auto known = ofInputs.find(&value);
  if (known != ofInputs.end())
    return known->second;
  ofInputs[&value] = false;
  const Node* node = value.producer();
  const bool depends = node && !node->is("Shape") && !node->is("Size") &&
                       llvm::any_of(node->operands(), [&](const Use& use) {
                         return use.value() && dependsOnInputs(*use.value());
                       });
  return ofInputs[&value] = depends;
}

void AffineNumbers::chooseBy(const Node& node, const Value& condition) {
  const NumberBounds bounds = walk(condition);
  if (!broken && !bounds.isFixed && !decided.contains(&truthBehind(condition)))
    addOutcomes(node, condition, bounds.low <= 0 && bounds.high >= 0,
                bounds.low != 0 || bounds.high != 0);
}

void AffineNumbers::addOutcomes(const Node& node, const Value& truth, bool mayBeFalse,
                                bool mayBeTrue) {
  decided.insert(&truth);
  found.push_back(outcomesOf(node, truth, mayBeFalse, mayBeTrue));
}

void AffineNumbers::indexBy(const Node& node, const Value& indices) {
  const NumberBounds bounds = walk(indices);
  if (broken || bounds.isFixed || bounds.low >= 0)
    return;
  Breakpoint breakpoint;
  breakpoint.node = &node;
  breakpoint.mayStayUnseen = dependsOnInputs(indices);
  breakpoint.sides = {{"counted from the end", true, {}},
                      {"counted from the start", bounds.high >= 0, {}}};
  breakpoint.seen = [&indices](Evaluation& at) {
    unsigned sides = 0;
    if (const NumberTensor* numbers = at.numbers(indices))
      for (double number : numbers->numbers)
        sides |= number < 0 ? 1U : 2U;
    return sides;
  };
  found.push_back(std::move(breakpoint));
}

NumberBounds AffineNumbers::multiply(const Node& node, Operands operands) {
  const NumberBounds &a = operands[0], &b = operands[1];
  const double products[] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
  const NumberBounds bounds =
      between(*std::min_element(products, products + 4), *std::max_element(products, products + 4),
              a.isIntegral && b.isIntegral);
  if (a.isFixed || b.isFixed || a.isUniform() || b.isUniform())
    return bounds;
  if (a.isIndicator() && b.isIndicator())
    addOutcomes(node, node.result(), true, true);
  else if (a.isIndicator() || b.isIndicator())
    chooseBy(node, *node.operand(a.isIndicator() ? 0 : 1));
  else
    breakAt(&node, "it multiplies two numbers that depend on lengths or inputs");
  return bounds;
}

NumberBounds AffineNumbers::divide(const Node& node, Operands operands) {
  const NumberBounds &data = operands[0], &by = operands[1];
  const bool isModulo = node.is("Mod");
  if (!by.isFixed && !by.isUniform()) {
    gapAt(&node, formatted("it {} a number that depends on lengths or inputs",
                           isModulo ? "is the remainder of a division by" : "divides by"));
    // The remainder has the divisor's sign.
    return between(isModulo && by.low >= 0 ? 0 : -NumberBounds::largest, NumberBounds::largest,
                   data.isIntegral && by.isIntegral);
  }
  if (!isModulo && !isInteger(node.operand(0)->type().elementType())) {
    if (!by.isUniform() || by.low == 0)
      return between(-NumberBounds::largest, NumberBounds::largest, false);
    const double one = data.low / by.low, other = data.high / by.low;
    return between(std::min(one, other), std::max(one, other), data.isIntegral && by.low == 1);
  }
  if (!by.isUniform() || by.low <= 0 || data.low < 0 || !data.isIntegral || !by.isIntegral) {
    breakAt(&node, "it divides a number that may be negative, or by one that is not a positive "
                   "constant");
    return {};
  }
  const double divisor = by.low;
  Breakpoint breakpoint;
  breakpoint.node = &node;
  breakpoint.sides = {
      {"a division of a number less than its divisor", data.low < divisor, {}},
      {"a division of a number that is its divisor or more", data.high >= divisor, {}}};
  breakpoint.seen = [data = node.operand(0), divisor](Evaluation& at) {
    unsigned sides = 0;
    if (const NumberTensor* numbers = at.numbers(*data))
      for (double number : numbers->numbers)
        sides |= number < divisor ? 1U : 2U;
    return sides;
  };
  found.push_back(std::move(breakpoint));
  return isModulo ? between(0, divisor - 1, true)
                  : between(std::floor(data.low / divisor), std::floor(data.high / divisor), true);
}

void AffineNumbers::nameConstants(Operands operands) {
  for (const NumberBounds& bounds : operands)
    if (bounds.isFixed && bounds.isUniform() && std::abs(bounds.low) < NumberBounds::largest)
      nameRows(integerOf(std::abs(bounds.low)));
}

NumberBounds AffineNumbers::choose(const Node& node, Operands operands) {
  if (operands.size() == 1)
    return operands[0];
  if (operands.size() > 2 || !node.operand(1)) {
    breakAt(&node, "it chooses between more than two numbers");
    return {};
  }
  nameConstants(operands);
  const bool isLeast = node.is("Min");
  const Ordering order = orderingOf(*node.operand(0), operands[0], *node.operand(1), operands[1]);
  found.push_back(order.breakpoint(node, *node.operand(0), *node.operand(1),
                                   "less in its first operand", "greater in its first operand"));
  const NumberBounds &one = operands[0], &other = operands[1];
  const bool isIntegral = one.isIntegral && other.isIntegral;
  NumberBounds bounds =
      isLeast ? between(std::min(one.low, other.low), std::min(one.high, other.high), isIntegral)
              : between(std::max(one.low, other.low), std::max(one.high, other.high), isIntegral);
  limitBy(bounds, leastOf(one.least, other.least), greatestOf(one.most, other.most));
  if (isLeast)
    limitBy(bounds, Dim::unknown(), one.most.isUnknown() ? other.most : one.most);
  else
    limitBy(bounds, one.least.isUnknown() ? other.least : one.least, Dim::unknown());
  return bounds;
}

NumberBounds AffineNumbers::clip(const Node& node, Operands operands) {
  nameConstants(operands);
  NumberBounds bounds = operands[0];
  bounds.isFixed = false;
  for (unsigned i : {1U, 2U}) {
    const Value* limit = i < operands.size() ? node.operand(i) : nullptr;
    if (!limit) {
      if (node.attribute(i == 1 ? "min" : "max"))
        breakAt(&node, "its bounds are attributes");
      continue;
    }
    const Ordering order = orderingOf(*node.operand(0), operands[0], *limit, operands[i]);
    found.push_back(
        order.breakpoint(node, *node.operand(0), *limit,
                         i == 1 ? "given less than its minimum" : "given less than its maximum",
                         i == 1 ? "given more than its minimum" : "given more than its maximum"));
    bounds.isIntegral &= operands[i].isIntegral;
    const Dim least = bounds.least, most = bounds.most;
    bounds.least = bounds.most = Dim::unknown();
    if (i == 1) {
      limitBy(bounds, operands[i].least, greatestOf(most, operands[i].most));
      bounds.low = std::max(bounds.low, operands[i].low);
      bounds.high = std::max(bounds.high, operands[i].low);
    } else {
      limitBy(bounds, leastOf(least, operands[i].least), operands[i].most);
      bounds.low = std::min(bounds.low, operands[i].high);
      bounds.high = std::min(bounds.high, operands[i].high);
    }
  }
  return bounds;
}

NumberBounds AffineNumbers::compare(const Node& node, Operands operands) {
  nameConstants(operands);
  const Ordering order = orderingOf(*node.operand(0), operands[0], *node.operand(1), operands[1]);
  const bool onLess = node.is("Less") || node.is("LessOrEqual");
  const bool onGreater = node.is("Greater") || node.is("GreaterOrEqual");
  const bool onEqual = node.is("Equal") || node.is("LessOrEqual") || node.is("GreaterOrEqual");
  const bool mayBeTrue =
      (order.less && onLess) || (order.greater && onGreater) || (order.equal && onEqual);
  const bool mayBeFalse =
      (order.less && !onLess) || (order.greater && !onGreater) || (order.equal && !onEqual);
  Breakpoint breakpoint = outcomesOf(node, node.result(), mayBeFalse, mayBeTrue);
  if (order.difference) {
    const Dim& difference = *order.difference; // first - second
    const Dim one = Dim::fixed(1);
    auto& whenFalse = breakpoint.sides[0].atLeastZero;
    auto& whenTrue = breakpoint.sides[1].atLeastZero;
    if (onLess) {
      whenTrue = {onEqual ? -difference : -difference - one};
      whenFalse = {onEqual ? difference - one : difference};
    } else if (onGreater) {
      whenTrue = {onEqual ? difference : difference - one};
      whenFalse = {onEqual ? -difference - one : -difference};
    } else {
      whenTrue = {difference, -difference};
    }
  }
  decided.insert(&node.result());
  found.push_back(std::move(breakpoint));
  return between(mayBeFalse ? 0 : 1, mayBeTrue ? 1 : 0, true);
}

NumberBounds AffineNumbers::combine(const Node& node, Operands operands) {
  if (!operands[0].isIndicator() || !operands[1].isIndicator()) {
    breakAt(&node, "it combines numbers that are not booleans");
    return {};
  }
  double low = 0, high = 1;
  if (node.is("And")) {
    low = std::min(operands[0].low, operands[1].low);
    high = std::min(operands[0].high, operands[1].high);
  } else if (node.is("Or")) {
    low = std::max(operands[0].low, operands[1].low);
    high = std::max(operands[0].high, operands[1].high);
  }
  addOutcomes(node, node.result(), low == 0, high == 1);
  return between(low, high, true);
}

NumberBounds AffineNumbers::range(const Node& node, Operands operands) {
  const NumberBounds &start = operands[0], &limit = operands[1], &step = operands[2];
  const bool isWholeRange = start.isIntegral && limit.isIntegral;
  if (!step.isUniform() || std::abs(step.low) != 1 || !isWholeRange) {
    breakAt(&node, "it does not count by ones");
    return {};
  }
  const bool isRising = step.low > 0;
  const Ordering order = orderingOf(*node.operand(0), start, *node.operand(1), limit);
  found.push_back(order.breakpoint(node, *node.operand(0), *node.operand(1),
                                   "given a start before its limit",
                                   "given a start after its limit"));
  NumberBounds bounds = isRising ? between(start.low, std::max(start.low, limit.high - 1), true)
                                 : between(std::min(start.high, limit.low + 1), start.high, true);
  const Dim one = Dim::fixed(1);
  if (isRising)
    limitBy(bounds, start.least, limit.most - one);
  else
    limitBy(bounds, limit.least + one, start.most);
  return bounds;
}

namespace {

enum class NumberKind {
  Add,
  Subtract,
  Negate,
  Multiply,
  Divide,
  Choose,
  Clip,
  Rectify,
  Compare,
  Combine,
  Complement,
  Select,
  Round,
  Range,
  RunningSum,
  Fill,
  Scatter,
  GatherAlong,
  Triangle,
};

struct NumberOperator {
  const char* name;
  NumberKind kind;
  unsigned operands = 1; ///< number of operands that it needs
};

/// Operators whose results the argument bounds, other than those that move numbers.
constexpr NumberOperator numberOperators[] = {
    {"Add", NumberKind::Add, 2},
    {"Sub", NumberKind::Subtract, 2},
    {"Neg", NumberKind::Negate},
    {"Mul", NumberKind::Multiply, 2},
    {"Div", NumberKind::Divide, 2},
    {"Mod", NumberKind::Divide, 2},
    {"Min", NumberKind::Choose},
    {"Max", NumberKind::Choose},
    {"Clip", NumberKind::Clip},
    {"Relu", NumberKind::Rectify},
    {"Abs", NumberKind::Rectify},
    {"Equal", NumberKind::Compare, 2},
    {"Less", NumberKind::Compare, 2},
    {"LessOrEqual", NumberKind::Compare, 2},
    {"Greater", NumberKind::Compare, 2},
    {"GreaterOrEqual", NumberKind::Compare, 2},
    {"And", NumberKind::Combine, 2},
    {"Or", NumberKind::Combine, 2},
    {"Xor", NumberKind::Combine, 2},
    {"Not", NumberKind::Complement},
    {"Where", NumberKind::Select, 3},
    {"Floor", NumberKind::Round},
    {"Ceil", NumberKind::Round},
    {"Round", NumberKind::Round},
    {"Range", NumberKind::Range, 3},
    {"CumSum", NumberKind::RunningSum},
    {"ConstantOfShape", NumberKind::Fill},
    {"ScatterElements", NumberKind::Scatter, 3},
    {"ScatterND", NumberKind::Scatter, 3},
    {"GatherElements", NumberKind::GatherAlong, 2},
    {"Trilu", NumberKind::Triangle},
};

/// nullopt also if an operand is missing.
std::optional<NumberKind> kindOf(const Node& node) {
  const auto* entry = llvm::find_if(
      numberOperators, [&](const NumberOperator& each) { return node.op() == OpName(each.name); });
  if (entry == std::end(numberOperators))
    return std::nullopt;
  for (unsigned i = 0; i < entry->operands; ++i)
    if (!node.operand(i))
      return std::nullopt;
  return entry->kind;
}

} // namespace

NumberBounds AffineNumbers::apply(const Value& value, Operands operands) {
  const Node& node = *value.producer();
  if (const auto moves = movementKind(node)) {
    const std::optional<Movement> movement = movementOf(value);
    const NumberBounds data = *moves == MovementKind::Concat
                                  ? unionOf(operands)
                                  : unionOf({operands[movement ? movement->data : 0]});
    if (*moves == MovementKind::Convert)
      return convert(value, data);
    walkMovement(value, *this);
    return data;
  }
  const std::optional<NumberKind> kind = value.resultIndex() == 0 ? kindOf(node) : std::nullopt;
  // Any function of one number that all elements equal is such a number, too.
  if (!kind && elementFunction(node) &&
      llvm::all_of(operands, [](const NumberBounds& bounds) { return bounds.isUniform(); })) {
    NumberBounds bounds = boundsOf(value);
    bounds.isFixed = false;
    return bounds;
  }
  if (!kind) {
    // These compare indices with indices, or sum or rotate, and choose nothing by size.
    const bool choosesNothing = node.is("OneHot") || node.is("EyeLike") || node.is("MatMul") ||
                                isReduction(node) || node.is("Sin") || node.is("Cos");
    if (choosesNothing)
      gapAt(&node, "its numbers are not known to be affine");
    else
      breakAt(&node, "its numbers are not known to be affine");
    return between(-NumberBounds::largest, NumberBounds::largest, false);
  }
  const NumberBounds& first = operands[0];
  switch (*kind) {
  case NumberKind::Add:
    return sumOf(first, operands[1]);
  case NumberKind::Subtract:
    return sumOf(first, negativeOf(operands[1]));
  case NumberKind::Negate:
    return negativeOf(first);
  case NumberKind::Multiply:
    return multiply(node, operands);
  case NumberKind::Divide:
    return divide(node, operands);
  case NumberKind::Choose:
    return choose(node, operands);
  case NumberKind::Clip:
    return clip(node, operands);
  case NumberKind::Rectify:
    if (first.low < 0)
      breakAt(&node, "its operand may be negative");
    return first;
  case NumberKind::Compare:
    return compare(node, operands);
  case NumberKind::Combine:
    return combine(node, operands);
  case NumberKind::Complement:
    return between(first.high == 0 ? 1 : 0, first.low > 0 ? 0 : 1, true);
  case NumberKind::Select:
    chooseBy(node, *node.operand(0));
    return unionOf(operands.drop_front());
  case NumberKind::Round:
    if (!first.isIntegral)
      breakAt(&node, "it rounds numbers that are not integers");
    return first;
  case NumberKind::Range:
    return range(node, operands);
  case NumberKind::RunningSum:
    if (!first.isUniform())
      gapAt(&node, "it sums numbers that differ");
    return between(std::min(0.0, first.low * NumberBounds::largest),
                   std::max(0.0, first.low * NumberBounds::largest), first.isIntegral);
  case NumberKind::Fill: {
    const NumberTensor* filled = evaluation.numbers(value);
    if (!filled || filled->numbers.empty())
      breakAt(&node, "its fill value is not known");
    const double fill = broken ? 0 : filled->numbers.front();
    return between(fill, fill, fill == std::floor(fill));
  }
  case NumberKind::Scatter:
    indexBy(node, *node.operand(1));
    return unionOf({operands[0], operands[2]});
  case NumberKind::GatherAlong:
    indexBy(node, *node.operand(1));
    walkLookUp(node, *node.operand(0), operands[1].isFixed, *this);
    return unionOf({first});
  case NumberKind::Triangle:
    return unionOf({first, between(0, 0, true)});
  }
  return {};
}

NumberBounds AffineNumbers::convert(const Value& value, const NumberBounds& data) {
  const Node& node = *value.producer();
  const ElementType to = value.type().elementType();
  if (to == ElementType::Bool) {
    const bool mayBeFalse = data.low <= 0 && data.high >= 0;
    const bool mayBeTrue = data.low != 0 || data.high != 0;
    if (!decided.contains(&truthBehind(value)))
      addOutcomes(node, value, mayBeFalse, mayBeTrue);
    return between(mayBeFalse ? 0 : 1, mayBeTrue ? 1 : 0, true);
  }
  if (isInteger(to) && !data.isIntegral)
    breakAt(&node, "it rounds numbers that are not integers");
  const auto range = wholeNumbersOf(to);
  if (data.low < range.first || data.high > range.second)
    breakAt(&node, "it converts lengths to a type that cannot represent all of them");
  return data;
}

} // namespace kvopt::analysis
