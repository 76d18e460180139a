// Rules of elementwise operators.
#include "check/call.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvopt::check {
namespace {

using IntegerFunction = int64_t (*)(int64_t, int64_t);
using NumberFunction = double (*)(double, double);

/// A known number as its element type stores it.
double stored(double value, ir::ElementType type) {
  return type == ir::ElementType::Double ? value : static_cast<double>(static_cast<float>(value));
}

/// Elements of two integer or two known tensors combined; null if the kinds differ.
Ref combined(const Ref& a, const Ref& b, IntegerFunction ofIntegers, NumberFunction ofNumbers,
             bool isTruth = false) {
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape || elementCount(*shape) < 0)
    return nullptr;
  auto result = std::make_shared<Tensor>();
  result->shape = *shape;
  result->type = isTruth ? ir::ElementType::Bool : a->type;
  result->isToken = a->isToken || b->isToken;
  const Ref left = broadcastTo(a, *shape), right = broadcastTo(b, *shape);
  if (a->isInteger() && b->isInteger() && ofIntegers) {
    result->kind = Kind::Integer;
    for (size_t i = 0; i < left->integers.size(); ++i)
      result->integers.push_back(ofIntegers(left->integers[i], right->integers[i]));
    return result;
  }
  if (a->kind != Kind::Known || b->kind != Kind::Known || !ofNumbers)
    return nullptr;
  result->kind = isTruth ? Kind::Integer : Kind::Known;
  for (size_t i = 0; i < left->known.size(); ++i) {
    const double value = ofNumbers(left->known[i], right->known[i]);
    if (isTruth)
      result->integers.push_back(value != 0);
    else
      result->known.push_back(stored(value, a->type));
  }
  return result;
}

bool areKnown(Call& call) {
  return llvm::all_of(call.operands, [](const Ref& operand) {
    return !operand || (!operand->isReal() && !(operand->isWeight && operand->kind == Kind::Known));
  });
}

/// The result; without one, the model fails if the operands do not broadcast to each other.
Results need(Call& call, Ref result) {
  if (result)
    return {std::move(result)};
  Extents shape;
  for (const Ref& operand : call.operands)
    if (operand) {
      auto common = broadcastShape(shape, operand->shape);
      if (!common)
        return call.fail("its operands do not fit");
      shape = *common;
    }
  return call.unsupported("it combines operands of different kinds, or the result is too large");
}

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
    value = wrapped(0 - uint64_t(value));
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
  if (b->kind == Kind::Known && !b->isWeight && !a->isHollow) {
    // The sign of a known divisor keeps infinities.
    auto shape = broadcastShape(a->shape, b->shape);
    if (!shape)
      return call.fail("its operands do not fit");
    const Ref signs = broadcastTo(b, *shape);
    size_t at = 0;
    return {mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> x) {
      const double value = signs->known[at++];
      return call.field().multiply(x[0], call.field().invert(x[1]),
                                   value > 0   ? 1
                                   : value < 0 ? -1
                                               : 0);
    })};
  }
  return need(call, multiplyReals(call, a, inverse(call, b)));
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
                          a, b, [](int64_t x, int64_t y) { return x % y; },
                          [](double x, double y) { return std::fmod(x, y); }));
  return need(call, combined(
                        a, b, [](int64_t x, int64_t y) { return (x % y + y) % y; },
                        [](double x, double y) { return x - y * std::floor(x / y); }));
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
  const uint64_t name = nameHash(isUpper ? "Max" : "Min");
  return mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> x) {
    ExactBound bound(call.field(), name);
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

Ref knownScalar(double value) {
  auto result = std::make_shared<Tensor>();
  result->kind = Kind::Known;
  result->known = {value};
  return result;
}

Results clip(Call& call) {
  Ref low = call.in(1), high = call.in(2);
  if (const ir::Attribute* value = call.attribute("min"))
    low = knownScalar(value->floatValue());
  if (const ir::Attribute* value = call.attribute("max"))
    high = knownScalar(value->floatValue());
  Ref result = call.in(0);
  if (low)
    result = bounded(call, result, low, true);
  if (high && result)
    result = bounded(call, result, high, false);
  return need(call, result);
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
      if (name == "Abs" || name == "Relu")
        call.noteThreshold(a, knownScalar(0), /*meets=*/false);
      auto result = std::make_shared<Tensor>(*a);
      for (double& value : result->known)
        value = stored(function(value), a->type);
      return {result};
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
  Ref both[] = {reshaped(first, {first->count()}), reshaped(second, {second->count()})};
  const Ref list = concatenated(call, both, 0);
  int64_t next = 0;
  const int64_t count = first->count();
  return {rearranged(list, *shape, [&](llvm::ArrayRef<int64_t>) {
    const int64_t at = next++;
    return choice->integers[static_cast<size_t>(at)] ? at : count + at;
  })};
}

Ref truths(const Ref& a, llvm::function_ref<bool(const Exact&)> ofReal,
           llvm::function_ref<bool(double)> ofKnown) {
  std::vector<int64_t> result;
  if (a->isHollow)
    return hollowTensor(a->shape, false, ir::ElementType::Bool);
  for (const Exact& value : a->reals)
    result.push_back(ofReal(value));
  for (double value : a->known)
    result.push_back(ofKnown(value));
  return integerTensor(a->shape, std::move(result), ir::ElementType::Bool);
}

Results isNan(Call& call) {
  return {truths(
      call.in(0), [](const Exact& x) { return x.status == Status::NotANumber; },
      [](double x) { return std::isnan(x); })};
}

Results isInf(Call& call) {
  return {truths(
      call.in(0),
      [](const Exact& x) {
        return x.status == Status::MinusInfinity || x.status == Status::PlusInfinity;
      },
      [](double x) { return std::isinf(x); })};
}

Results equal(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  if (areKnown(call))
    call.noteThreshold(a, b);
  if (areKnown(call))
    return need(call, combined(
                          a, b, [](int64_t x, int64_t y) { return int64_t(x == y); },
                          [](double x, double y) { return double(x == y); }, true));
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape)
    return call.fail("its operands do not fit");
  if (call.isHollow())
    return {hollowTensor(*shape, false, ir::ElementType::Bool)};
  const Ref left = broadcastTo(call.real(a), *shape), right = broadcastTo(call.real(b), *shape);
  std::vector<int64_t> result;
  for (size_t i = 0; i < left->reals.size(); ++i) {
    if (left->reals[i].status == Status::Undecided || right->reals[i].status == Status::Undecided)
      return call.unsupported("it compares numbers that the arithmetic does not represent");
    result.push_back(left->reals[i].isEqual(right->reals[i]));
  }
  return {integerTensor(*shape, std::move(result), ir::ElementType::Bool)};
}

/// The order of reals is an unknown predicate, "less", of both. Places differ in its value, so that
/// both cases occur.
Results ordered(Call& call, llvm::StringRef name) {
  const Ref a = call.real(0), b = call.real(1);
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape)
    return call.fail("its operands do not fit");
  const Ref left = broadcastTo(a, *shape), right = broadcastTo(b, *shape);
  const bool isSwapped = name == "Greater" || name == "LessOrEqual";
  const bool isNegated = name == "GreaterOrEqual" || name == "LessOrEqual";
  const uint64_t less = nameHash("Less");
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
  call.noteThreshold(a, b);
  if (name == "Less")
    return need(call, combined(
                          a, b, [](int64_t x, int64_t y) { return int64_t(x < y); },
                          [](double x, double y) { return double(x < y); }, true));
  if (name == "LessOrEqual")
    return need(call, combined(
                          a, b, [](int64_t x, int64_t y) { return int64_t(x <= y); },
                          [](double x, double y) { return double(x <= y); }, true));
  if (name == "Greater")
    return need(call, combined(
                          a, b, [](int64_t x, int64_t y) { return int64_t(x > y); },
                          [](double x, double y) { return double(x > y); }, true));
  return need(call, combined(
                        a, b, [](int64_t x, int64_t y) { return int64_t(x >= y); },
                        [](double x, double y) { return double(x >= y); }, true));
}

Results logic(Call& call) {
  const Ref a = call.in(0), b = call.in(1);
  const llvm::StringRef name = call.node.op().type();
  if (call.isHollow()) {
    auto shape = broadcastShape(a->shape, b->shape);
    return shape ? Results{hollowTensor(*shape, false, ir::ElementType::Bool)}
                 : call.fail("its operands do not fit");
  }
  const bool isTruth = a->isBool();
  if (name == "And" || name == "BitwiseAnd")
    return need(call, combined(
                          a, b, [](int64_t x, int64_t y) { return x & y; }, nullptr, isTruth));
  if (name == "Or" || name == "BitwiseOr")
    return need(call, combined(
                          a, b, [](int64_t x, int64_t y) { return x | y; }, nullptr, isTruth));
  return need(call, combined(
                        a, b, [](int64_t x, int64_t y) { return x ^ y; }, nullptr, isTruth));
}

Results negation(Call& call) {
  const Ref a = call.in(0);
  if (a->isHollow)
    return {a};
  if (!a->isInteger())
    return call.unsupported("its operand is unknown");
  auto result = std::make_shared<Tensor>(*a);
  for (int64_t& value : result->integers)
    value = !value;
  return {result};
}

Results converted(Call& call, const Ref& a, ir::ElementType type) {
  const bool toFloat = ir::isFloatingPoint(type);
  auto result = std::make_shared<Tensor>(*a);
  result->type = type;
  if (a->isReal()) {
    if (toFloat) {
      call.math.assumptions.insert("casts between floating-point types are exact");
      return {result};
    }
    if (type == ir::ElementType::Bool)
      return {truths(
          a, [](const Exact& x) { return !x.isZero(); }, [](double x) { return x != 0; })};
    return {unknownOf(call, "Cast " + std::to_string(int(type)), a)};
  }
  if (type == ir::ElementType::Bool)
    call.noteThreshold(a, a->isInteger() ? integerScalar(0) : knownScalar(0));
  if (a->isInteger()) {
    if (!toFloat) {
      if (type == ir::ElementType::Bool)
        for (int64_t& value : result->integers)
          value = value != 0;
      return {result};
    }
    result->kind = Kind::Known;
    for (int64_t value : a->integers)
      result->known.push_back(stored(double(value), type));
    result->integers.clear();
    return {result};
  }
  if (toFloat)
    return {result};
  result->kind = Kind::Integer;
  for (double value : a->known) {
    if (type == ir::ElementType::Bool) {
      result->integers.push_back(value != 0);
    } else if (std::abs(value) < 1e18) {
      result->integers.push_back(static_cast<int64_t>(value));
    } else {
      // ONNX leaves the result open.
      result->integers.push_back(std::numeric_limits<int64_t>::min());
      call.math.assumptions.insert("numbers beyond all integers become the smallest integer");
      if (call.math.doubt.empty())
        call.math.doubt = call.node.describe() + " converts a number beyond all integers";
    }
  }
  result->known.clear();
  return {result};
}

Results cast(Call& call) {
  return converted(call, call.in(0), static_cast<ir::ElementType>(call.integer("to", 1)));
}

Results castLike(Call& call) { return converted(call, call.in(0), call.in(1)->type); }

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
