// Operators that compute each element from the elements at the same place (ONNX's text of each
// gives the formula).
#include "meaning/definitions.h"

#include <cmath>
#include <numbers>

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;
using Elements = llvm::ArrayRef<Scalar>;

std::vector<Tensor> operandsOf(Call& call) {
  std::vector<Tensor> all;
  for (unsigned k = 0; k < call.count(); ++k)
    if (call.has(k))
      all.push_back(call[k]);
  return all;
}

/// A function of one element, or of the elements of all operands.
template <Scalar (*f)(Scalar)> void unary(Call& call) {
  call.result(call.elementwise({call[0]}, call[0].type(), [](Elements x) { return f(x[0]); }));
}
template <Scalar (*f)(Scalar, Scalar)> void binary(Call& call) {
  call.result(call.elementwise({call[0], call[1]}, call[0].type(),
                               [](Elements x) { return f(x[0], x[1]); }));
}
template <Scalar (*f)(Scalar, Scalar)> void predicate(Call& call) {
  call.result(
      call.elementwise({call[0], call[1]}, Type::Bool, [](Elements x) { return f(x[0], x[1]); }));
}
template <Function function> void real(Call& call) {
  call.result(call.elementwise({call[0]}, call[0].type(),
                               [](Elements x) { return apply(function, x[0]); }));
}

Scalar plus(Scalar a, Scalar b) { return a + b; }
Scalar minus(Scalar a, Scalar b) { return a - b; }
Scalar times(Scalar a, Scalar b) { return a * b; }
/// What ONNX does not say.
Scalar nothing(Scalar like) { return {like.formulas(), like.formulas().unknown(like.sort())}; }
/// Of integers: rounded towards zero.
Scalar divided(Scalar a, Scalar b) {
  if (a.isReal())
    return a / b;
  return b.is(0) ? nothing(a) : truncatedQuotient(a, b);
}
Scalar negative(Scalar a) { return -a; }
Scalar itself(Scalar a) { return a; }
Scalar reciprocal(Scalar a) { return 1.0 / a; }
Scalar signOf(Scalar a) {
  return a.isReal() ? apply(Function::Sign, a)
                    : select(a > 0, a.integer(1), select(a < 0, a.integer(-1), a.integer(0)));
}
Scalar rectified(Scalar a) { return maximum(a, 0); }
Scalar exponential(Scalar a) { return apply(Function::Exponential, a); }
Scalar sigmoid(Scalar a) { return 1.0 / (1.0 + exponential(-a)); }
/// log(1 + e^a) = max(a, 0) + log(1 + e^-|a|), which does not overflow.
Scalar softplus(Scalar a) {
  return maximum(a, 0) + apply(Function::Logarithm, 1.0 + exponential(-absolute(a)));
}
Scalar softsign(Scalar a) { return a / (1.0 + absolute(a)); }
Scalar mish(Scalar a) { return a * apply(Function::HyperbolicTangent, softplus(a)); }
Scalar hardSwish(Scalar a) { return a * maximum(minimum(a / 6.0 + 0.5, 1), 0); }
Scalar isNan(Scalar a) { return !same(a, a); }

Scalar lessThan(Scalar a, Scalar b) { return a < b; }
Scalar atMost(Scalar a, Scalar b) { return a <= b; }
Scalar greaterThan(Scalar a, Scalar b) { return a > b; }
Scalar atLeast(Scalar a, Scalar b) { return a >= b; }
Scalar exclusive(Scalar a, Scalar b) { return !same(a, b); }
Scalar scaledByNegative(Scalar x, Scalar slope) { return select(x < 0, x * slope, x); }

/// x/2 (1 + erf(x / sqrt 2)), and its approximation by tanh.
Scalar gelu(Scalar x) {
  return 0.5 * x * (1.0 + apply(Function::ErrorFunction, x * std::sqrt(0.5)));
}
Scalar fastGelu(Scalar x) {
  const Scalar inner = (x + 0.044715 * (x * x * x)) * std::sqrt(2 / std::numbers::pi);
  return 0.5 * x * (1.0 + apply(Function::HyperbolicTangent, inner));
}
Scalar quickGelu(Scalar x, double alpha) { return x * sigmoid(x * alpha); }

void defineGelu(Call& call) {
  const bool isFast = call.textAttribute("approximate", "none") == "tanh";
  call.result(call.elementwise({call[0]}, call[0].type(),
                               [=](Elements x) { return isFast ? fastGelu(x[0]) : gelu(x[0]); }));
}

/// A function with numbers from attributes.
void withAlpha(Call& call, double otherwise, Scalar (*f)(Scalar, double)) {
  const double alpha = call.realAttribute("alpha", otherwise);
  call.result(
      call.elementwise({call[0]}, call[0].type(), [=](Elements x) { return f(x[0], alpha); }));
}
void defineElu(Call& call) {
  withAlpha(call, 1, [](Scalar x, double alpha) {
    return select(x < 0, (exponential(x) - 1.0) * alpha, x);
  });
}
void defineCelu(Call& call) {
  withAlpha(call, 1, [](Scalar x, double alpha) {
    return maximum(x, 0) + minimum((exponential(x / alpha) - 1.0) * alpha, 0);
  });
}
void defineLeakyRelu(Call& call) {
  withAlpha(call, 0.01, [](Scalar x, double alpha) { return select(x < 0, x * alpha, x); });
}
void defineThresholdedRelu(Call& call) {
  withAlpha(call, 1, [](Scalar x, double alpha) { return select(x > alpha, x, x.like(0)); });
}
void defineQuickGelu(Call& call) {
  withAlpha(call, 1.702, [](Scalar x, double alpha) { return quickGelu(x, alpha); });
}
void defineSwish(Call& call) {
  withAlpha(call, 1, [](Scalar x, double alpha) { return quickGelu(x, alpha); });
}
void defineHardSigmoid(Call& call) {
  const double alpha = call.realAttribute("alpha", 0.2), beta = call.realAttribute("beta", 0.5);
  call.result(call.elementwise({call[0]}, call[0].type(), [=](Elements x) {
    return maximum(minimum(x[0] * alpha + beta, 1), 0);
  }));
}
void defineSelu(Call& call) {
  const double alpha = call.realAttribute("alpha", 1.67326319217681884765625),
               gamma = call.realAttribute("gamma", 1.05070102214813232421875);
  call.result(call.elementwise({call[0]}, call[0].type(), [=](Elements x) {
    return select(x[0] <= 0, (alpha * exponential(x[0]) - alpha) * gamma, x[0] * gamma);
  }));
}
void defineShrink(Call& call) {
  const double bound = call.realAttribute("lambd", 0.5), bias = call.realAttribute("bias", 0);
  call.result(call.elementwise({call[0]}, call[0].type(), [=](Elements x) {
    const Scalar a = toReal(x[0]);
    const Scalar shrunk = select(a < -bound, a + bias, select(a > bound, a - bias, a.like(0)));
    return x[0].isReal() ? shrunk : toInteger(shrunk);
  }));
}

/// Both fused: the bias is added first.
template <Scalar (*f)(Scalar)> void afterBias(Call& call) {
  call.result(call.elementwise(operandsOf(call), call[0].type(),
                               [](Elements x) { return f(x.size() > 1 ? x[0] + x[1] : x[0]); }));
}

template <Scalar (*f)(Scalar, Scalar)> void variadic(Call& call) {
  call.result(call.elementwise(operandsOf(call), call[0].type(), [](Elements x) {
    Scalar all = x[0];
    for (Scalar each : x.drop_front())
      all = f(all, each);
    return all;
  }));
}
void defineMean(Call& call) {
  const auto count = static_cast<double>(call.count());
  call.result(call.elementwise(operandsOf(call), call[0].type(), [=](Elements x) {
    Scalar all = x[0];
    for (Scalar each : x.drop_front())
      all = all + each;
    return all / count;
  }));
}

void defineWhere(Call& call) {
  call.result(call.elementwise({call[0], call[1], call[2]}, call[1].type(),
                               [](Elements x) { return select(x[0], x[1], x[2]); }));
}

/// Attributes up to version 10, operands from 11 on. The upper bound wins where they cross.
void defineClip(Call& call) {
  const Tensor data = call[0];
  const Type type = data.type();
  std::optional<Scalar> low, high;
  if (call.opset() < 11) {
    if (call.hasAttribute("min"))
      low = call.number(call.realAttribute("min", 0), type);
    if (call.hasAttribute("max"))
      high = call.number(call.realAttribute("max", 0), type);
  } else {
    if (call.has(1))
      low = call.single(1);
    if (call.has(2))
      high = call.single(2);
  }
  call.result(call.elementwise({data}, type, [=](Elements x) {
    const Scalar above = low ? maximum(x[0], *low) : x[0];
    return high ? minimum(above, *high) : above;
  }));
}

Scalar integerPower(Scalar base, Scalar exponent) {
  if (std::optional<int64_t> known = exponent.number(); known && *known >= 0 && *known <= 8) {
    Scalar all = base.integer(1);
    for (int64_t k = 0; k < *known; ++k)
      all = all * base;
    return all;
  }
  return reduce(Reduction::Product, exponent, [&](Scalar) { return base; });
}

/// Of the type of the base.
void definePow(Call& call) {
  const Tensor exponent = call[1];
  if (sortOf(call[0].type()) == Sort::Integer && sortOf(exponent.type()) == Sort::Integer)
    call.requireAt(
        listed(exponent.extents()),
        [=](Index index) {
          const Scalar power = exponent.at(index);
          return both(power >= 0, power <= 1024);
        },
        "a power of integers with an exponent that is negative or beyond 1024 is not defined");
  call.result(call.elementwise({call[0], call[1]}, call[0].type(), [](Elements x) {
    if (!x[0].isReal() && !x[1].isReal())
      return integerPower(x[0], x[1]);
    const Scalar power = apply(Function::Power, x[0], x[1]);
    return x[0].isReal() ? power : toInteger(power);
  }));
}

/// With `fmod`, the sign is that of the dividend; otherwise that of the divisor.
void defineMod(Call& call) {
  const bool isC = call.integerAttribute("fmod", 0) != 0;
  call.result(call.elementwise({call[0], call[1]}, call[0].type(), [=](Elements x) {
    if (x[0].isReal())
      return apply(Function::Remainder, x[0], x[1]);
    if (x[1].is(0))
      return nothing(x[0]);
    if (isC)
      return x[0] - x[1] * truncatedQuotient(x[0], x[1]);
    return remainder(x[0], x[1]);
  }));
}

void defineIsInf(Call& call) {
  const bool high = call.integerAttribute("detect_positive", 1) != 0,
             low = call.integerAttribute("detect_negative", 1) != 0;
  call.result(call.elementwise({call[0]}, Type::Bool, [=](Elements x) {
    const double infinity = std::numeric_limits<double>::infinity();
    if (!x[0].isReal())
      return x[0].boolean(false);
    const Scalar no = x[0].boolean(false);
    return either(high ? same(x[0], infinity) : no, low ? same(x[0], -infinity) : no);
  }));
}
void defineIsNan(Call& call) {
  call.result(call.elementwise({call[0]}, Type::Bool, [](Elements x) { return isNan(x[0]); }));
}
void defineNot(Call& call) {
  call.result(call.elementwise({call[0]}, Type::Bool, [](Elements x) { return !x[0]; }));
}

/// Bit by bit, from the sum of powers of two. -1 - a is the complement in every type.
Scalar bitOf(Scalar a, int bit) { return remainder(quotient(a, int64_t(1) << bit), 2); }
template <int64_t (*f)(int64_t, int64_t)> void bitwise(Call& call) {
  const Type type = call[0].type();
  const auto bits = static_cast<int>(ir::bitWidth(type).value_or(64));
  call.extents(0, type, call.broadcastExtents({call[0], call[1]}));
  if (bits > 32)
    return call.refuse("bits of 64-bit integers are not defined");
  call.result(call.elementwise({call[0], call[1]}, type, [=](Elements x) {
    Scalar all = x[0].integer(0);
    for (int bit = 0; bit < bits; ++bit) {
      const Scalar a = bitOf(x[0], bit), b = bitOf(x[1], bit);
      // The only functions are a*b, a + b - a*b and a + b - 2*a*b.
      const Scalar value = a * static_cast<double>(f(1, 0)) + b * static_cast<double>(f(0, 1)) +
                           a * b * static_cast<double>(f(1, 1) - f(1, 0) - f(0, 1));
      all = all + value * static_cast<double>(int64_t(1) << bit);
    }
    return all;
  }));
}
void defineBitwiseNot(Call& call) {
  call.result(call.elementwise({call[0]}, call[0].type(), [](Elements x) { return -1.0 - x[0]; }));
}
void defineBitShift(Call& call) {
  const bool isLeft = call.textAttribute("direction", "LEFT") == "LEFT";
  const Type type = call[0].type();
  const Tensor by = call[1];
  const double bits = std::min(ir::bitWidth(type).value_or(64), 63u);
  call.requireAt(
      listed(by.extents()), [=](Index index) { return by.at(index) < bits; },
      "a shift by more bits than an element has is not defined");
  call.result(call.elementwise({call[0], call[1]}, type, [=](Elements x) {
    const Scalar power = toInteger(apply(Function::Power, x[0].real(2), toReal(x[1])));
    return isLeft ? x[0] * power : quotient(x[0], power);
  }));
}

void defineDropout(Call& call) {
  call.ignoreAttributes({"seed", "ratio"}); // of training
  call.extents(0, call[0].type(), call[0].extents());
  call.extents(1, call.opset() < 10 ? call[0].type() : Type::Bool, call[0].extents());
  const bool isTraining = call.has(2) && call.formulas().booleanOf(call.single(2).expr()) != false;
  if (isTraining)
    return call.refuse("training mode drops elements at random: only inference is defined");
  call.result(call[0]);
  const Tensor data = call[0];
  const Type type = call.opset() < 10 ? data.type() : Type::Bool;
  call.result(1, Tensor(listed(data.extents()), type,
                        [=, yes = call.number(1, type)](Index) { return yes; }));
}

/// Of halves of the last axis, or of two operands.
void defineSwiGlu(Call& call) {
  const Tensor x = call[0];
  const double alpha = call.realAttribute("alpha", 1);
  if (call.has(1)) {
    call.result(call.elementwise({x, call[1]}, x.type(),
                                 [=](Elements e) { return quickGelu(e[0], alpha) * e[1]; }));
    return;
  }
  if (x.rank() == 0)
    return call.reject("a scalar has no halves");
  const unsigned axis = x.rank() - 1;
  const Scalar half = quotient(x.extent(axis), 2);
  call.result(Tensor(replaced(x.extents(), axis, half), x.type(), [=](Index index) {
    const Scalar gate = x.at(index);
    return quickGelu(gate, alpha) * x.at(replaced(index, axis, index[axis] + half));
  }));
}

int64_t bitAnd(int64_t a, int64_t b) { return a & b; }
int64_t bitOr(int64_t a, int64_t b) { return a | b; }
int64_t bitXor(int64_t a, int64_t b) { return a ^ b; }

} // namespace

void register_elementwise(Definitions& all) {
  all.add("Add", binary<plus>);
  all.add("Sub", binary<minus>);
  all.add("Mul", binary<times>);
  all.add("Div", binary<divided>);
  all.add("Neg", unary<negative>);
  all.add("Abs", unary<absolute>);
  all.add("Sign", unary<signOf>, 9);
  all.add("Identity", unary<itself>);
  all.add("Reciprocal", unary<reciprocal>);
  all.add("Relu", unary<rectified>);
  all.add("Sigmoid", unary<sigmoid>);
  all.add("Softplus", unary<softplus>);
  all.add("Softsign", unary<softsign>);
  all.add("Mish", unary<mish>, 18);
  all.add("HardSwish", unary<hardSwish>, 14);
  all.add("Exp", real<Function::Exponential>);
  all.add("Log", real<Function::Logarithm>);
  all.add("Sqrt", real<Function::SquareRoot>);
  all.add("Sin", real<Function::Sine>);
  all.add("Cos", real<Function::Cosine>);
  all.add("Tan", real<Function::Tangent>);
  all.add("Asin", real<Function::ArcSine>);
  all.add("Acos", real<Function::ArcCosine>);
  all.add("Atan", real<Function::ArcTangent>);
  all.add("Sinh", real<Function::HyperbolicSine>, 9);
  all.add("Cosh", real<Function::HyperbolicCosine>, 9);
  all.add("Tanh", real<Function::HyperbolicTangent>);
  all.add("Asinh", real<Function::InverseHyperbolicSine>, 9);
  all.add("Acosh", real<Function::InverseHyperbolicCosine>, 9);
  all.add("Atanh", real<Function::InverseHyperbolicTangent>, 9);
  all.add("Erf", real<Function::ErrorFunction>, 9);
  all.add("Ceil", real<Function::Ceiling>);
  all.add("Floor", real<Function::Floor>);
  all.add("Round", real<Function::Round>, 11);
  all.add("Equal", predicate<same>);
  all.add("Less", predicate<lessThan>);
  all.add("LessOrEqual", predicate<atMost>, 12);
  all.add("Greater", predicate<greaterThan>);
  all.add("GreaterOrEqual", predicate<atLeast>, 12);
  all.add("And", predicate<both>);
  all.add("Or", predicate<either>);
  all.add("Xor", predicate<exclusive>);
  all.add("Not", defineNot);
  all.add("IsNaN", defineIsNan, 9);
  all.add("IsInf", defineIsInf, 10);
  all.add("Where", defineWhere, 9);
  all.add("Max", variadic<maximum>);
  all.add("Min", variadic<minimum>);
  all.add("Sum", variadic<plus>);
  all.add("Mean", defineMean);
  all.add("Clip", defineClip);
  all.add("Pow", definePow);
  all.add("Mod", defineMod, 10);
  all.add("PRelu", binary<scaledByNegative>, 7);
  all.add("LeakyRelu", defineLeakyRelu);
  all.add("Elu", defineElu);
  all.add("Celu", defineCelu, 12);
  all.add("Selu", defineSelu, 6);
  all.add("ThresholdedRelu", defineThresholdedRelu, 10);
  all.add("HardSigmoid", defineHardSigmoid);
  all.add("Shrink", defineShrink, 9);
  all.add("Swish", defineSwish, 24);
  all.add("Gelu", defineGelu, 20);
  all.add("BitwiseAnd", bitwise<bitAnd>, 18);
  all.add("BitwiseOr", bitwise<bitOr>, 18);
  all.add("BitwiseXor", bitwise<bitXor>, 18);
  all.add("BitwiseNot", defineBitwiseNot, 18);
  all.add("BitShift", defineBitShift, 11);
  all.add("Dropout", defineDropout, 7);
  all.add("SwiGLU", defineSwiGlu, 25);
  all.add("com.microsoft::Gelu", unary<gelu>);
  all.add("com.microsoft::QuickGelu", defineQuickGelu);
  all.add("com.microsoft::BiasGelu", afterBias<gelu>);
  all.add("com.microsoft::FastGelu", afterBias<fastGelu>);
}

} // namespace kvopt::meaning
