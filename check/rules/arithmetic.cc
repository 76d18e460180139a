// Rules of arithmetic and functions of elements.
#include "check/rules/elementwise.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvopt::check {
namespace {

// Sums of integers wrap around, as in machines.
int64_t wrapped(uint64_t value) { return static_cast<int64_t>(value); }

Results add(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  if (areKnown(call))
    return need(call, combined(
                          call, a, b, Tracing::Sum,
                          [](int64_t x, int64_t y) { return wrapped(uint64_t(x) + uint64_t(y)); },
                          [](double x, double y) { return x + y; }));
  return need(call, addReals(call, a, b));
}

Ref negative(Call& call, const Ref& a) {
  auto result = std::make_shared<Tensor>(*a);
  traceEach(call, *a, *result, [&](Growths::Number x) {
    return call.math.growths.product(x, {fixedGrowth, -1});
  });
  for (int64_t& value : result->integers)
    value = value == openInteger ? value : wrapped(0 - uint64_t(value));
  for (double& value : result->known)
    value = -value;
  for (Exact& value : result->reals)
    value = call.field().negate(value);
  return result;
}

Results subtract(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  if (areKnown(call))
    return need(call, combined(
                          call, a, b, Tracing::Difference,
                          [](int64_t x, int64_t y) { return wrapped(uint64_t(x) - uint64_t(y)); },
                          [](double x, double y) { return x - y; }));
  return need(call, addReals(call, a, negative(call, b)));
}

Results multiply(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  const Ref known =
      areKnown(call) ? combined(
                           call, a, b, Tracing::Product,
                           [](int64_t x, int64_t y) { return wrapped(uint64_t(x) * uint64_t(y)); },
                           [](double x, double y) { return x * y; })
                     : nullptr;
  if (areKnown(call) && !isBetterReal(call, known))
    return need(call, known);
  return need(call, multiplyReals(call, a, b));
}

/// Notes that a divisor is not zero. A sum of exponentials or a root of a sum of squares is not.
void assumeDivisor(Call& call, unsigned operand) {
  const Ref divisor = call.in(operand);
  const ir::Value* value = call.node.operand(operand);
  const ir::Node* producer = value ? value->producer() : nullptr;
  if (divisor->isReal() && !divisor->isHollow && !(producer && producer->is("Sqrt")) &&
      llvm::any_of(divisor->reals, [](const Exact& x) { return x.isNumber() && x.hasExponent; }))
    call.math.assumptions.insert("no divisor that is computed from inputs is zero");
}

Ref inverse(Call& call, const Ref& a) {
  if (!a->isReal())
    call.noteThreshold(a, knownScalar(0), /*meets=*/true); // no number at zero
  return mapReals(call, {a}, a->shape,
                  [&](llvm::ArrayRef<Exact> x) { return call.field().invert(x[0]); });
}

/// Notes the steps that a division of integers makes, and where its dividend changes its sign.
void noteDivisions(Call& call, const Ref& a, const Ref& b) {
  const auto shape = broadcastShape(a->shape, b->shape);
  if (!shape || elementCount(*shape) < 0 || (a->growths.empty() && b->growths.empty()))
    return;
  const Ref left = broadcastTo(a, *shape), right = broadcastTo(b, *shape);
  for (size_t i = 0; i < static_cast<size_t>(left->count()); ++i) {
    call.noteThreshold(left->number(i), right->number(i), /*isExact=*/false);
    call.noteThreshold(left->number(i), {fixedGrowth, 0}, /*isExact=*/false);
  }
}

Results divide(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  if (areKnown(call)) {
    if (b->isInteger() && llvm::is_contained(b->integers, 0))
      return call.fail("it divides by zero");
    const Ref known = combined(
        call, a, b, Tracing::Quotient,
        [](int64_t x, int64_t y) { return y == -1 ? wrapped(0 - uint64_t(x)) : x / y; },
        [](double x, double y) { return x / y; });
    if (b->isInteger())
      noteDivisions(call, a, b);
    if (!isBetterReal(call, known))
      return need(call, known);
    call.noteThreshold(b, knownScalar(0), /*meets=*/true); // no number at zero
  }
  const auto shape = broadcastShape(a->shape, b->shape);
  if (!shape)
    return call.fail("its operands do not fit");
  assumeDivisor(call, 1);
  // A known divisor keeps infinities and fills.
  const bool isKnown = b->kind == Kind::Known && !b->isWeight;
  const Ref divisors = isKnown && !a->isHollow ? broadcastTo(b, *shape) : nullptr;
  size_t at = 0;
  return {mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> x) {
    return call.field().divide(x[0], x[1], divisors ? divisors->known[at++] : 0);
  })};
}

Results modulo(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  if (!areKnown(call))
    return call.unsupported("remainders of reals are unknown");
  noteDivisions(call, a, b);
  if (b->isInteger() && llvm::is_contained(b->integers, 0))
    return call.fail("it divides by zero");
  if (call.integer("fmod", 0) != 0)
    return need(call, combined(
                          call, a, b, Tracing::TruncatedRemainder,
                          [](int64_t x, int64_t y) { return y == -1 ? 0 : x % y; },
                          [](double x, double y) { return std::fmod(x, y); }));
  return need(call, combined(
                        call, a, b, Tracing::Remainder,
                        [](int64_t x, int64_t y) {
                          const int64_t rest = y == -1 ? 0 : x % y;
                          return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
                        },
                        [](double x, double y) { return x - y * std::floor(x / y); }));
}

Results negate(Call& call) { return {negative(call, call.in(0))}; }

Results reciprocal(Call& call) {
  const Ref a = call.in(0);
  if (!areKnown(call)) {
    assumeDivisor(call, 0);
    return {inverse(call, a)};
  }
  if (call.math.isBySizes && !a->growths.empty())
    return {inverse(call, a)};
  auto result = std::make_shared<Tensor>(*a);
  untraceAll(call, *a, *result);
  for (double& value : result->known)
    value = stored(1 / value, a->type);
  return {result};
}

template <class Op> Results folded(Call& call, Op op) {
  Ref total = call.in(0);
  for (unsigned i = 1; i < call.operands.size() && total; ++i)
    total = op(total, call.in(i));
  return need(call, total);
}

Results sumOfAll(Call& call) {
  return folded(call, [&](const Ref& a, const Ref& b) { return addReals(call, a, b); });
}

/// A bound of two tensors. A bound beyond every number of the model changes minus infinity only.
Ref bounded(Call& call, Ref a, Ref b, bool isUpper) {
  if (!a || !b)
    return a ? a : b;
  if (!a->isReal() && !b->isReal())
    call.noteThreshold(a, b, /*meets=*/false);
  if (!a->isReal() && !b->isReal())
    return isUpper ? combined(
                         call, a, b, Tracing::Upper,
                         [](int64_t x, int64_t y) { return std::max(x, y); },
                         [](double x, double y) { return boundOf(x, y, true); })
                   : combined(
                         call, a, b, Tracing::Lower,
                         [](int64_t x, int64_t y) { return std::min(x, y); },
                         [](double x, double y) { return boundOf(x, y, false); });
  if (!a->isReal())
    std::swap(a, b);
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape)
    return nullptr;
  constexpr double fill = 1e4;
  if (b->kind == Kind::Known && llvm::all_of(b->known, [&](double value) {
        return isUpper ? value <= -fill : value >= fill;
      })) {
    call.math.assumptions.insert(withinFills);
    return mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> x) {
      if (x[0].status != Status::Fill || !isUpper)
        return isUpper && x[0].status == Status::MinusInfinity ? x[1] : x[0];
      ExactBound bound(call.field(), isUpper);
      bound.add(x[0]);
      bound.add(x[1]);
      return bound.bound();
    });
  }
  return mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> x) {
    for (const Exact& bound : {x[0], x[1]}) {
      const Exact& other = x[bound.isEqual(x[0]) ? 1 : 0];
      const bool isLow = bound.status == Status::MinusInfinity || bound.status == Status::Fill;
      if (!other.isNumber() || (!isLow && bound.status != Status::PlusInfinity))
        continue;
      if (isLow)
        call.math.assumptions.insert(withinFills);
      return isLow == isUpper ? other : bound;
    }
    ExactBound bound(call.field(), isUpper);
    bound.add(x[0]);
    bound.add(x[1]);
    return bound.bound();
  });
}

Results maximum(Call& call) {
  return folded(call, [&](const Ref& a, const Ref& b) { return bounded(call, a, b, true); });
}

Results minimum(Call& call) {
  return folded(call, [&](const Ref& a, const Ref& b) { return bounded(call, a, b, false); });
}

Results clip(Call& call) {
  Ref low = call.in(1), high = call.in(2);
  if (const ir::Attribute* value = call.attribute("min"))
    low = knownScalar(value->floatValue());
  if (const ir::Attribute* value = call.attribute("max"))
    high = knownScalar(value->floatValue());
  for (const Ref& limit : {low, high})
    if (limit && limit->count() != 1)
      return call.fail("it takes limits of one element");
  Ref result = call.in(0);
  if (low)
    result = bounded(call, result, low, true);
  if (high && result)
    result = bounded(call, result, high, false);
  return need(call, result && !call.in(0)->isHollow ? reshaped(result, call.in(0)->shape) : result);
}

Results exponential(Call& call) {
  const Ref a = call.in(0);
  if (!areKnown(call) || (call.math.isBySizes && !a->growths.empty()))
    return {mapReals(call, {a}, a->shape, [&](llvm::ArrayRef<Exact> x) {
      if (x[0].status == Status::Fill)
        call.math.assumptions.insert(fillHidesKey);
      return call.field().exponential(x[0]);
    })};
  auto result = std::make_shared<Tensor>(*a);
  untraceAll(call, *a, *result);
  for (double& value : result->known)
    value = stored(std::exp(value), a->type);
  return {result};
}

/// A power modulo 2^64, with an exponent that is not negative.
int64_t powerOfIntegers(int64_t base, int64_t exponent) {
  uint64_t result = 1;
  for (auto square = uint64_t(base); exponent != 0; exponent >>= 1, square *= square)
    if ((exponent & 1) != 0)
      result *= square;
  return wrapped(result);
}

Results power(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  if (a->isInteger() && b->isInteger() &&
      llvm::any_of(b->integers, [](int64_t exponent) { return exponent < 0; }))
    return call.unsupported("it is a negative power of an integer");
  const Ref known = areKnown(call) && a->kind == b->kind
                        ? combined(call, a, b, Tracing::None, powerOfIntegers,
                                   [](double x, double y) { return std::pow(x, y); })
                        : nullptr;
  if (areKnown(call) && a->kind == b->kind && !isBetterReal(call, known))
    return need(call, known);
  if (a->isInteger())
    return call.unsupported("it is a power of an integer in another type");
  double exponent = 0;
  if (b->count() == 1 && b->kind == Kind::Known)
    exponent = b->known[0];
  else if (b->count() == 1 && b->isInteger())
    exponent = double(b->integers[0]);
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape)
    return call.fail("its operands do not fit");
  constexpr double mostFactors = 4;
  if (exponent >= 1 && exponent <= mostFactors && exponent == std::floor(exponent)) {
    Ref product = a;
    for (int i = 1; i < int(exponent); ++i)
      product = multiplyReals(call, product, a);
    return {reshaped(call.real(product), *shape)};
  }
  if (exponent == 0.5 || exponent == -0.5) {
    const Ref root = reshaped(unknownOf(call, "Sqrt", a), *shape);
    return {exponent > 0 ? root : inverse(call, root)};
  }
  if (exponent == -1)
    return {reshaped(inverse(call, a), *shape)};
  const uint64_t name = nameHash("Pow");
  return {mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> x) {
    return call.field().unknown(name, {x[0], x[1]});
  })};
}

} // namespace

void addArithmeticRules(RuleTable& rules) {
  rules["Add"] = add;
  rules["Sub"] = subtract;
  rules["Mul"] = multiply;
  rules["Div"] = divide;
  rules["Mod"] = modulo;
  rules["Neg"] = negate;
  rules["Reciprocal"] = reciprocal;
  rules["Sum"] = sumOfAll;
  rules["Max"] = maximum;
  rules["Min"] = minimum;
  rules["Clip"] = clip;
  rules["Exp"] = exponential;
  rules["Pow"] = power;
}

} // namespace kvopt::check
