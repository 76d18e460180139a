// Rules of comparisons, logic, choices, and casts of elements.
#include "check/arithmetic/integer_range.h"
#include "check/rules/elementwise.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace kvopt::check {
namespace {

constexpr const char* exactCasts = "casts between floating-point types are exact";

bool isFinite(const Exact& x) {
  return x.status <= Status::Unspecified && x.status != Status::MinusInfinity &&
         x.status != Status::PlusInfinity;
}

/// Elements that an open truth chooses are open, too: some finite number, or undecided.
Ref chosenOpenly(Call& call, const Ref& choice, const Ref& first, const Ref& second) {
  auto result = std::make_shared<Tensor>(*first);
  if (first->isInteger()) {
    for (size_t i = 0; i < result->integers.size(); ++i) {
      int64_t& element = result->integers[i];
      const int64_t other = second->integers[i];
      const bool isOpen = choice->integers[i] == openInteger && element != other;
      element = isOpen ? openInteger : choice->integers[i] ? element : other;
    }
    return result;
  }
  const Ref reals = call.real(first), others = call.real(second);
  result = std::make_shared<Tensor>(*reals);
  for (size_t i = 0; i < result->reals.size(); ++i) {
    Exact& element = result->reals[i];
    const Exact& other = others->reals[i];
    if (choice->integers[i] != openInteger)
      element = choice->integers[i] ? element : other;
    else if (!element.isEqual(other))
      element = {0, 0,
                 isFinite(element) && isFinite(other) ? Status::Unspecified : Status::Undecided,
                 false};
  }
  return result;
}

Results where(Call& call) {
  const Ref condition = call.in(0);
  Ref parts[] = {call.in(1), call.in(2)};
  auto shape = broadcastShape(parts[0]->shape, parts[1]->shape);
  if (shape)
    shape = broadcastShape(*shape, condition->shape);
  if (!shape || elementCount(*shape) < 0)
    return call.fail("its operands do not fit");
  if (condition->isHollow)
    return call.hollow(*shape);
  if (!condition->isInteger())
    return call.unsupported("its condition is unknown");
  unify(call, parts);
  const Ref first = broadcastTo(parts[0], *shape), second = broadcastTo(parts[1], *shape);
  const Ref choice = broadcastTo(condition, *shape);
  if (llvm::is_contained(choice->integers, openInteger))
    return {chosenOpenly(call, choice, first, second)};
  Ref both[] = {reshaped(first, {first->count()}), reshaped(second, {second->count()})};
  const Ref list = concatenated(call, both, 0);
  if (!list)
    return call.unsupported("its operands are too large");
  int64_t next = 0;
  const int64_t count = first->count();
  return {rearranged(list, *shape, [&](llvm::ArrayRef<int64_t>) {
    const int64_t at = next++;
    return choice->integers[static_cast<size_t>(at)] ? at : count + at;
  })};
}

/// Notes that numbers which may be functions of sizes are looked at as if they were arbitrary ones.
void noteReals(Call& call) {
  if (call.math.isBySizes && llvm::any_of(call.operands, [](const Ref& operand) {
        return operand && operand->isReal() && !operand->isHollow;
      }))
    call.math.thresholds.noteOpen(call.node.describe() +
                                  " compares numbers that sizes may determine");
}

Results truths(Call& call, llvm::function_ref<bool(const Exact&)> ofReal,
               llvm::function_ref<bool(double)> ofKnown) {
  const Ref a = call.in(0);
  std::vector<int64_t> result;
  if (a->isHollow)
    return {hollowTensor(a->shape, false, ir::ElementType::Bool)};
  constexpr double mostNumber = 1e38;
  for (GrowthId id : a->growths) {
    const Growth& growth = call.math.growths.at(id);
    call.noteUntraced(id);
    if (growth.isTraced() && (growth.low < -mostNumber || growth.high > mostNumber))
      call.math.thresholds.noteOpen(call.node.describe() +
                                    " looks at numbers that may be infinite");
  }
  noteReals(call);
  if (llvm::any_of(a->reals, [](const Exact& x) { return x.status == Status::Undecided; }))
    return call.unsupported("it looks at numbers that the arithmetic does not represent");
  for (const Exact& value : a->reals)
    result.push_back(ofReal(value));
  for (double value : a->known)
    result.push_back(ofKnown(value));
  return {integerTensor(a->shape, std::move(result), ir::ElementType::Bool)};
}

/// Notes that arbitrary numbers, whatever they are computed from, are no NaN and not infinite.
void noteNumbers(Call& call) {
  if (call.in(0)->isReal())
    call.math.assumptions.insert(finiteInputs);
}

Results isNan(Call& call) {
  noteNumbers(call);
  return truths(
      call, [](const Exact& x) { return x.status == Status::NotANumber; },
      [](double x) { return std::isnan(x); });
}

Results isInf(Call& call) {
  noteNumbers(call);
  const bool detectsNegative = call.integer("detect_negative", 1) != 0;
  const bool detectsPositive = call.integer("detect_positive", 1) != 0;
  return truths(
      call,
      [&](const Exact& x) {
        return (detectsNegative && x.status == Status::MinusInfinity) ||
               (detectsPositive && x.status == Status::PlusInfinity);
      },
      [&](double x) { return std::isinf(x) && (x < 0 ? detectsNegative : detectsPositive); });
}

Results equal(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  if (areKnown(call))
    call.noteThreshold(a, b);
  if (areKnown(call))
    return need(call, combined(
                          call, a, b, Tracing::Truth,
                          [](int64_t x, int64_t y) { return int64_t(x == y); },
                          [](double x, double y) { return double(x == y); }));
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape)
    return call.fail("its operands do not fit");
  if (call.isHollow())
    return {hollowTensor(*shape, false, ir::ElementType::Bool)};
  noteReals(call);
  const Ref left = broadcastTo(call.real(a), *shape), right = broadcastTo(call.real(b), *shape);
  // Different functions can have one value for many numbers, as x and its absolute value do. A
  // constant is a function's value for few numbers.
  const bool areFunctions = a->isReal() && b->isReal();
  const uint64_t equals = nameHash("Equal") + call.math.order;
  std::vector<int64_t> result;
  for (size_t i = 0; i < left->reals.size(); ++i) {
    const Exact &x = left->reals[i], &y = right->reals[i];
    const Status more = std::max(x.status, y.status);
    if (more == Status::Undecided)
      return call.unsupported("it compares numbers that the arithmetic does not represent");
    if (more == Status::Unspecified) {
      result.push_back(openInteger);
      call.math.openInteger = call.node.describe() + " compares rows that see no key";
      continue;
    }
    bool areEqual = more != Status::NotANumber && x.isEqual(y);
    if (more == Status::Number && areFunctions && !areEqual) {
      call.math.usesOrder = true;
      const auto [low, high] =
          std::minmax(x, y, [](const Exact& one, const Exact& other) { return one.p < other.p; });
      areEqual = call.field().unknown(equals, {low, high}).p & 1;
    }
    result.push_back(areEqual);
  }
  return {integerTensor(*shape, std::move(result), ir::ElementType::Bool)};
}

/// The order of reals is an unknown predicate, "less", of both. Places differ in its value, so that
/// both cases occur.
Results ordered(Call& call, llvm::StringRef name) {
  noteReals(call);
  const Ref a = call.real(0), b = call.real(1);
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape)
    return call.fail("its operands do not fit");
  const Ref left = broadcastTo(a, *shape), right = broadcastTo(b, *shape);
  const bool isSwapped = name == "Greater" || name == "LessOrEqual";
  const bool isNegated = name == "GreaterOrEqual" || name == "LessOrEqual";
  const uint64_t less = nameHash("Less") + call.math.order;
  call.math.usesOrder = true;
  std::vector<int64_t> result;
  for (size_t i = 0; i < left->reals.size(); ++i) {
    const Exact& x = isSwapped ? right->reals[i] : left->reals[i];
    const Exact& y = isSwapped ? left->reals[i] : right->reals[i];
    const Exact truth = call.field().unknown(less, {x, y});
    if (truth.status != Status::Number)
      return call.unsupported("the order of an element that is not a number is unknown");
    result.push_back((truth.p & 1) != uint32_t(isNegated));
  }
  return {integerTensor(*shape, std::move(result), ir::ElementType::Bool)};
}

Results compare(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  const llvm::StringRef name = call.node.op().type();
  if (call.isHollow()) {
    auto shape = broadcastShape(a->shape, b->shape);
    return shape ? Results{hollowTensor(*shape, false, ir::ElementType::Bool)}
                 : call.fail("its operands do not fit");
  }
  if (!areKnown(call))
    return ordered(call, name);
  const bool isAbove = name == "GreaterOrEqual" || name == "Less";
  call.noteThreshold(a, b, /*meets=*/true, isAbove ? 1 : -1);
  if (name == "Less")
    return need(call,
                combined(
                    call, a, b, Tracing::Truth, [](int64_t x, int64_t y) { return int64_t(x < y); },
                    [](double x, double y) { return double(x < y); }));
  if (name == "LessOrEqual")
    return need(call, combined(
                          call, a, b, Tracing::Truth,
                          [](int64_t x, int64_t y) { return int64_t(x <= y); },
                          [](double x, double y) { return double(x <= y); }));
  if (name == "Greater")
    return need(call,
                combined(
                    call, a, b, Tracing::Truth, [](int64_t x, int64_t y) { return int64_t(x > y); },
                    [](double x, double y) { return double(x > y); }));
  return need(call,
              combined(
                  call, a, b, Tracing::Truth, [](int64_t x, int64_t y) { return int64_t(x >= y); },
                  [](double x, double y) { return double(x >= y); }));
}

Results logic(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  const llvm::StringRef name = call.node.op().type();
  if (call.isHollow()) {
    auto shape = broadcastShape(a->shape, b->shape);
    return shape ? Results{hollowTensor(*shape, false, ir::ElementType::Bool)}
                 : call.fail("its operands do not fit");
  }
  const Tracing tracing = a->isBool() ? Tracing::Truth : Tracing::None;
  IntegerFunction function = [](int64_t x, int64_t y) { return x ^ y; };
  if (name == "And" || name == "BitwiseAnd")
    function = [](int64_t x, int64_t y) { return x & y; };
  if (name == "Or" || name == "BitwiseOr")
    function = [](int64_t x, int64_t y) { return x | y; };
  return need(call, combined(call, a, b, tracing, function, nullptr));
}

Results negation(Call& call) {
  const Ref a = call.in(0);
  if (a->isHollow)
    return {a};
  if (!a->isInteger())
    return call.unsupported("its operand is unknown");
  auto result = std::make_shared<Tensor>(*a);
  for (int64_t& value : result->integers)
    value = value == openInteger ? value : int64_t(!value);
  return {result};
}

/// Whether a floating-point type does not hold all positions of a long sequence.
bool isNarrow(ir::ElementType type) {
  constexpr unsigned fewestBits = 32;
  return ir::isFloatingPoint(type) && ir::bitWidth(type).value_or(0) < fewestBits;
}

/// Notes a cast that rounds sizes or positions beyond the scope. Truth values, as in masks, are
/// exact.
void noteNarrowing(Call& call, const Tensor& a, ir::ElementType type) {
  if (!isNarrow(type) || a.isConstant || a.isWeight || a.type == type)
    return;
  constexpr double mostTruth = 1, largestFill = -1e4;
  const auto isSize = [](double value) {
    return value > largestFill && std::abs(value) > mostTruth && value == std::floor(value) &&
           std::isfinite(value);
  };
  if (llvm::any_of(a.integers, isSize) || llvm::any_of(a.known, isSize))
    call.math.thresholds.noteOpen(call.node.describe() + " converts sizes or positions to " +
                                  ir::onnxName(type).str() + ", which does not hold all of them");
  else if (a.kind == Kind::Known)
    call.math.assumptions.insert(exactCasts);
}

Results converted(Call& call, const Ref& a, ir::ElementType type) {
  const bool toFloat = ir::isFloatingPoint(type);
  noteNarrowing(call, *a, type);
  auto result = std::make_shared<Tensor>(*a);
  result->type = type;
  if (a->isReal()) {
    if (toFloat) {
      call.math.assumptions.insert(exactCasts);
      return {result};
    }
    if (type == ir::ElementType::Bool)
      return truths(
          call, [](const Exact& x) { return !x.isZero(); }, [](double x) { return x != 0; });
    return {unknownOf(call, "Cast " + std::to_string(int(type)), a)};
  }
  if (type == ir::ElementType::Bool)
    call.noteThreshold(a, a->isInteger() ? integerScalar(0) : knownScalar(0));
  if (type == ir::ElementType::Bool)
    result->growths.clear(); // its threshold is noted
  if (a->isInteger()) {
    if (!toFloat) {
      if (type == ir::ElementType::Bool)
        for (int64_t& value : result->integers)
          value = value != 0;
      else
        traceEach(call, *a, *result, [](Growths::Number x) { return x.id; });
      return {result};
    }
    result->kind = Kind::Known;
    for (int64_t value : a->integers)
      result->known.push_back(stored(double(value), type));
    traceEach(call, *a, *result, [](Growths::Number x) { return x.id; });
    result->integers.clear();
    return {result};
  }
  if (toFloat) {
    traceEach(call, *a, *result, [](Growths::Number x) { return x.id; });
    return {result};
  }
  if (type != ir::ElementType::Bool)
    traceRounding(call, *a, *result);
  result->kind = Kind::Integer;
  for (double value : a->known) {
    if (type == ir::ElementType::Bool) {
      result->integers.push_back(value != 0);
    } else if (holds(type, std::trunc(value))) {
      result->integers.push_back(static_cast<int64_t>(value));
    } else {
      // ONNX leaves the result open.
      result->integers.push_back(openInteger);
      call.math.openInteger =
          call.node.describe() + " converts a number beyond all integers of its type";
    }
  }
  result->known.clear();
  return {result};
}

Results cast(Call& call) {
  const auto type = static_cast<ir::ElementType>(call.integer("to", 0));
  return type == ir::ElementType::Undefined ? call.fail("it casts to no element type")
                                            : converted(call, call.in(0), type);
}

Results castLike(Call& call) { return converted(call, call.in(0), call.in(1)->type); }

} // namespace

void addComparisonRules(RuleTable& rules) {
  rules["Where"] = where;
  rules["IsNaN"] = isNan;
  rules["IsInf"] = isInf;
  rules["Equal"] = equal;
  rules["Not"] = negation;
  rules["Cast"] = cast;
  rules["CastLike"] = castLike;
  for (const char* name : {"Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
    rules[name] = compare;
  for (const char* name : {"And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})
    rules[name] = logic;
}

} // namespace kvopt::check
