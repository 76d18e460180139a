// Rules of arithmetic and functions of elements.
#include "check/rules/elementwise.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

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
    return need(call,
                combined(
                    a, b, [](int64_t x, int64_t y) { return wrapped(uint64_t(x) + uint64_t(y)); },
                    [](double x, double y) { return x + y; }));
  return need(call, addReals(call, a, b));
}

Ref negative(Call& call, const Ref& a) {
  auto result = std::make_shared<Tensor>(*a);
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
    return need(call,
                combined(
                    a, b, [](int64_t x, int64_t y) { return wrapped(uint64_t(x) - uint64_t(y)); },
                    [](double x, double y) { return x - y; }));
  return need(call, addReals(call, a, negative(call, b)));
}

Results multiply(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  if (areKnown(call))
    return need(call,
                combined(
                    a, b, [](int64_t x, int64_t y) { return wrapped(uint64_t(x) * uint64_t(y)); },
                    [](double x, double y) { return x * y; }));
  return need(call, multiplyReals(call, a, b));
}

Ref inverse(Call& call, const Ref& a) {
  return mapReals(call, {a}, a->shape,
                  [&](llvm::ArrayRef<Exact> x) { return call.field().invert(x[0]); });
}

Results divide(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  if (areKnown(call)) {
    if (b->isInteger() && llvm::is_contained(b->integers, 0))
      return call.fail("it divides by zero");
    if (b->isInteger())
      call.noteThreshold(a, b);
    return need(call,
                combined(
                    a, b,
                    [](int64_t x, int64_t y) { return y == -1 ? wrapped(0 - uint64_t(x)) : x / y; },
                    [](double x, double y) { return x / y; }));
  }
  const auto shape = broadcastShape(a->shape, b->shape);
  if (!shape)
    return call.fail("its operands do not fit");
  // The sign of a known divisor keeps infinities.
  const bool hasSigns = b->kind == Kind::Known && !b->isWeight;
  const Ref signs = hasSigns && !a->isHollow ? broadcastTo(b, *shape) : nullptr;
  size_t at = 0;
  return {mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> x) {
    const double divisor = signs ? signs->known[at++] : 0;
    return call.field().divide(x[0], x[1], divisor > 0 ? 1 : divisor < 0 ? -1 : 0);
  })};
}

Results modulo(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  if (!areKnown(call))
    return call.unsupported("remainders of reals are unknown");
  call.noteThreshold(a, b, /*meets=*/false);
  if (b->isInteger() && llvm::is_contained(b->integers, 0))
    return call.fail("it divides by zero");
  if (call.integer("fmod", 0) != 0)
    return need(call, combined(
                          a, b, [](int64_t x, int64_t y) { return y == -1 ? 0 : x % y; },
                          [](double x, double y) { return std::fmod(x, y); }));
  const Ref remainder = combined(
      a, b, [](int64_t x, int64_t y) { return y == -1 ? 0 : (x % y + y) % y; },
      [](double x, double y) { return x - y * std::floor(x / y); });
  if (!remainder || !remainder->isInteger() || b->count() != 1)
    return need(call, remainder);
  auto periodic = std::make_shared<Tensor>(*remainder);
  periodic->period = commonPeriod(remainder->period, b->integers[0]);
  return {periodic};
}

Results negate(Call& call) { return {negative(call, call.in(0))}; }

Results reciprocal(Call& call) {
  const Ref a = call.in(0);
  if (!areKnown(call))
    return {inverse(call, a)};
  auto result = std::make_shared<Tensor>(*a);
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
                         a, b, [](int64_t x, int64_t y) { return std::max(x, y); },
                         [](double x, double y) { return std::max(x, y); })
                   : combined(
                         a, b, [](int64_t x, int64_t y) { return std::min(x, y); },
                         [](double x, double y) { return std::min(x, y); });
  if (!a->isReal())
    std::swap(a, b);
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape)
    return nullptr;
  constexpr double fill = 1e4;
  if (b->kind == Kind::Known && llvm::all_of(b->known, [&](double value) {
        return isUpper ? value <= -fill : value >= fill;
      })) {
    call.math.assumptions.insert("numbers are within the fills of masks");
    return mapReals(call, {a}, *shape, [&](llvm::ArrayRef<Exact> x) {
      Exact result = x[0];
      if (isUpper && result.status == Status::MinusInfinity)
        result.status = Status::Fill;
      return result;
    });
  }
  return mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> x) {
    for (const Exact& bound : {x[0], x[1]}) {
      const Exact& other = x[bound.isEqual(x[0]) ? 1 : 0];
      const bool isLow = bound.status == Status::MinusInfinity || bound.status == Status::Fill;
      if (!other.isNumber() || (!isLow && bound.status != Status::PlusInfinity))
        continue;
      if (isLow)
        call.math.assumptions.insert("numbers are within the fills of masks");
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
  if (!areKnown(call))
    return {mapReals(call, {a}, a->shape,
                     [&](llvm::ArrayRef<Exact> x) { return call.field().exponential(x[0]); })};
  auto result = std::make_shared<Tensor>(*a);
  for (double& value : result->known)
    value = stored(std::exp(value), a->type);
  return {result};
}

/// The function of a known number; null for a function that is always unknown.
double (*knownFunction(llvm::StringRef name))(double) {
  using Function = double (*)(double);
  return llvm::StringSwitch<Function>(name)
      .Case("Sqrt", [](double x) { return std::sqrt(x); })
      .Case("Sin", [](double x) { return std::sin(x); })
      .Case("Cos", [](double x) { return std::cos(x); })
      .Case("Tanh", [](double x) { return std::tanh(x); })
      .Case("Erf", [](double x) { return std::erf(x); })
      .Case("Log", [](double x) { return std::log(x); })
      .Case("Abs", [](double x) { return std::abs(x); })
      .Case("Floor", [](double x) { return std::floor(x); })
      .Case("Ceil", [](double x) { return std::ceil(x); })
      .Case("Round", [](double x) { return std::nearbyint(x); })
      .Case("Sign", [](double x) { return double((x > 0) - (x < 0)); })
      .Case("Relu", [](double x) { return std::max(x, 0.0); })
      .Case("Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); })
      .Default(nullptr);
}

Results unary(Call& call) {
  const Ref a = call.in(0);
  const llvm::StringRef name = call.node.op().type();
  if (a->isInteger()) {
    if (name != "Abs" && name != "Sign" && name != "Relu")
      return call.unsupported("its operand is an integer");
    call.noteThreshold(a, integerScalar(0), /*meets=*/false);
    auto result = std::make_shared<Tensor>(*a);
    for (int64_t& value : result->integers)
      value = name == "Abs"    ? std::abs(value)
              : name == "Relu" ? std::max<int64_t>(value, 0)
                               : (value > 0) - (value < 0);
    return {result};
  }
  if (areKnown(call))
    if (auto function = knownFunction(name)) {
      if (name == "Abs" || name == "Relu" || name == "Sign")
        call.noteThreshold(a, knownScalar(0), /*meets=*/false);
      if (name == "Floor" || name == "Ceil" || name == "Round")
        call.noteSteps(a);
      auto result = std::make_shared<Tensor>(*a);
      for (double& value : result->known)
        value = stored(function(value), a->type);
      return {result};
    }
  if (name == "Floor" && !call.math.floors.isEmpty()) {
    const uint64_t floor = nameHash(name);
    return {mapReals(call, {a}, a->shape, [&](llvm::ArrayRef<Exact> x) {
      const Exact* upper = call.math.floors.floorOf(x[0]);
      return upper ? *upper : call.field().unknown(floor, {x[0]});
    })};
  }
  std::string identity = name.str();
  for (const char* parameter : {"alpha", "beta", "gamma", "approximate"})
    if (const ir::Attribute* value = call.attribute(parameter)) {
      identity += value->kind() == ir::AttributeKind::Float
                      ? " " + std::to_string(value->floatValue())
                      : " " + call.text(parameter, "");
    }
  return {unknownOf(call, identity, a)};
}

Results power(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  if (areKnown(call) && a->kind == b->kind)
    return need(call, combined(
                          a, b,
                          [](int64_t x, int64_t y) {
                            return static_cast<int64_t>(std::pow(double(x), double(y)));
                          },
                          [](double x, double y) { return std::pow(x, y); }));
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
  for (const char* name : {"Sqrt",
                           "Sin",
                           "Cos",
                           "Tanh",
                           "Erf",
                           "Log",
                           "Abs",
                           "Floor",
                           "Ceil",
                           "Round",
                           "Sign",
                           "Relu",
                           "Sigmoid",
                           "Gelu",
                           "Softplus",
                           "Elu",
                           "HardSigmoid",
                           "HardSwish",
                           "LeakyRelu",
                           "Mish",
                           "com.microsoft::Gelu",
                           "com.microsoft::FastGelu",
                           "com.microsoft::QuickGelu"})
    rules[name] = unary;
}

} // namespace kvopt::check
