// Elementwise arithmetic of two or more operands under broadcasting: Add, Sub, Mul, Div, Mod, Pow,
// Min, Max.
//
// Versions: Add, Sub, Mul, Div and Pow from opset 7 (before, attributes requested broadcasting),
// Min and Max from 8, Mod from 10. Later versions only add element types.
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/narrow_floats.h"

#include <algorithm>
#include <cmath>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// c = f(a, b) where a, b and c have the same element type.
template <class List, class F> llvm::Error combine(KernelContext& context, List types, F f) {
  llvm::Expected<Extents> shape = commonShape(context);
  if (!shape)
    return shape.takeError();
  const TensorView& a = context.in(0);
  const TensorView& b = context.in(1);
  llvm::Expected<TensorView> c = context.output(0, a.element, *shape);
  if (!c)
    return c.takeError();
  return dispatch(types, context, a.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    if constexpr (isNarrowFloat<T>)
      broadcastNarrow<T>(context, *shape, a, b, c->as<T>(), f);
    else
      broadcastLoop<T, T, T>(context, *shape, a, b, c->as<T>(),
                             [&](T x, T y) { return store<T>(f(load(x), load(y))); });
    return llvm::Error::success();
  });
}

llvm::Error add(KernelContext& context) {
  return combine(context, NumericTypes(),
                 [](auto a, auto b) { return wrapping<decltype(a)>(a, b, std::plus<>()); });
}
llvm::Error sub(KernelContext& context) {
  return combine(context, NumericTypes(),
                 [](auto a, auto b) { return wrapping<decltype(a)>(a, b, std::minus<>()); });
}
llvm::Error mul(KernelContext& context) {
  return combine(context, NumericTypes(),
                 [](auto a, auto b) { return wrapping<decltype(a)>(a, b, std::multiplies<>()); });
}

/// An error if an integer divisor in use is zero.
llvm::Error checkDivisor(KernelContext& context) {
  const TensorView& b = context.in(1);
  if (!isInteger(b.element) || context.in(0).elementCount() == 0)
    return llvm::Error::success();
  return dispatch(IntegerTypes(), context, b.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    const T* data = b.as<T>();
    for (int64_t i = 0, count = b.elementCount(); i < count; ++i)
      if (data[i] == 0)
        return context.error("integer division by zero");
    return llvm::Error::success();
  });
}

/// a / b; integers truncate toward zero, and the lowest integer divided by -1 wraps to itself.
llvm::Error div(KernelContext& context) {
  if (llvm::Error error = checkDivisor(context))
    return error;
  return combine(context, NumericTypes(), [](auto a, auto b) {
    using T = decltype(a);
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
      if (b == T(-1))
        return wrapping<T>(T(0), a, std::minus<>());
    return static_cast<T>(a / b);
  });
}

/// fmod = 0: the remainder has the sign of the divisor, integers only. fmod = 1: that of the
/// dividend.
llvm::Error mod(KernelContext& context) {
  const bool truncated = context.node().intAttr("fmod", 0) != 0;
  if (!truncated && isFloatingPoint(context.in(0).element))
    return context.error("floating-point operands need fmod = 1");
  if (llvm::Error error = checkDivisor(context))
    return error;
  return combine(context, NumericTypes(), [&](auto a, auto b) {
    using T = decltype(a);
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(a, b);
    } else {
      if (std::is_signed_v<T> && b == static_cast<T>(-1))
        return T(0);
      const T remainder = static_cast<T>(a % b);
      const bool otherSign = remainder != 0 && (remainder < T(0)) != (b < T(0));
      return !truncated && otherSign ? static_cast<T>(remainder + b) : remainder;
    }
  });
}

/// base^exponent for integers modulo 2^bits; a negative exponent truncates 1 / base^|exponent|.
template <class T> T integerPower(T base, int64_t exponent) {
  if (exponent < 0) {
    if (base == T(1))
      return T(1);
    if (std::is_signed_v<T> && base == static_cast<T>(-1))
      return exponent % 2 == 0 ? T(1) : static_cast<T>(-1);
    return T(0);
  }
  uint64_t result = 1;
  uint64_t square = static_cast<uint64_t>(base);
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1)
      result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

/// The types in which exponents are used: every other type fits into one of them.
using ExponentTypes = TypeList<float, double, int64_t, uint64_t>;

/// `y` in the exponent type that holds each of its numbers; itself if that is its type.
llvm::Expected<TensorView> exponents(KernelContext& context, const TensorView& y) {
  const bool isReal = isFloatingPoint(y.element);
  const ElementType element = isReal ? ElementType::Float : ElementType::Int64;
  if (y.element == element || y.element == ElementType::Double || y.element == ElementType::UInt64)
    return y;
  const size_t elementSize = isReal ? sizeof(float) : sizeof(int64_t);
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(y.elementCount()), elementSize, &bytes))
    return context.error("a working copy does not fit in the address space");
  llvm::Expected<std::span<std::byte>> memory = context.scratch(bytes);
  if (!memory)
    return memory.takeError();
  TensorView wide = TensorView::contiguous(element, y.shape, memory->data());
  llvm::Error error = dispatch(NumericTypes(), context, y.element, [&](auto tag) -> llvm::Error {
    using Y = typename decltype(tag)::Type;
    using Exponent = std::conditional_t<std::is_integral_v<Y>, int64_t, float>;
    std::transform(y.as<Y>(), y.as<Y>() + y.elementCount(), wide.as<Exponent>(),
                   [](Y stored) { return static_cast<Exponent>(load(stored)); });
    return llvm::Error::success();
  });
  if (error)
    return error;
  return wide;
}

/// z = x^y with the element type of x; y may have another. An integer base with a floating-point
/// exponent is computed in double and truncated, with saturation; 0 to a negative integer power is
/// an error.
llvm::Error pow(KernelContext& context) {
  const TensorView& x = context.in(0);
  llvm::Expected<Extents> shape = broadcastShape(context, x.shape, context.in(1).shape);
  if (!shape)
    return shape.takeError();
  llvm::Expected<TensorView> y = exponents(context, context.in(1));
  if (!y)
    return y.takeError();
  llvm::Expected<TensorView> z = context.output(0, x.element, *shape);
  if (!z)
    return z.takeError();
  return dispatch(NumericTypes(), context, x.element, [&](auto baseTag) {
    using X = typename decltype(baseTag)::Type;
    return dispatch(ExponentTypes(), context, y->element, [&](auto exponentTag) -> llvm::Error {
      using Exponent = typename decltype(exponentTag)::Type;
      using Base = ArithmeticType<X>;
      bool undefined = false;
      broadcastLoop<X, X, Exponent>(
          context, *shape, x, *y, z->as<X>(), [&](X stored, Exponent exponent) {
            const Base base = load(stored);
            if constexpr (std::is_floating_point_v<Base>) {
              if (exponent == Exponent(2))
                return store<X>(base * base);
              using Wide = std::conditional_t<std::is_same_v<Exponent, float>, Base, double>;
              return store<X>(static_cast<Base>(
                  std::pow(static_cast<Wide>(base), static_cast<Wide>(exponent))));
            } else if constexpr (std::is_integral_v<Exponent>) {
              if (base == 0 && exponent < Exponent(0))
                undefined = true;
              const bool huge =
                  std::is_same_v<Exponent, uint64_t> && exponent > static_cast<Exponent>(INT64_MAX);
              // Modulo 2^64, the powers repeat from exponent 64 on, with a period that divides
              // 2^62.
              const int64_t small =
                  huge ? static_cast<int64_t>(static_cast<uint64_t>(exponent) -
                                              (uint64_t(1) << 63) + (uint64_t(1) << 62))
                       : static_cast<int64_t>(exponent);
              return integerPower<X>(base, small);
            } else {
              const double power =
                  std::pow(static_cast<double>(base), static_cast<double>(exponent));
              const double lowest = static_cast<double>(std::numeric_limits<X>::min());
              const double beyond = std::ldexp(1.0, std::numeric_limits<X>::digits);
              if (std::isnan(power))
                return X(0);
              if (power >= beyond)
                return std::numeric_limits<X>::max();
              return power <= lowest ? std::numeric_limits<X>::min() : static_cast<X>(power);
            }
          });
      if (undefined)
        return context.error("zero to a negative power");
      return llvm::Error::success();
    });
  });
}

/// Min and Max: any number of operands; NaN wins.
template <class F> llvm::Error fold(KernelContext& context, F better) {
  const TensorView& first = context.in(0);
  Extents shape = first.shape;
  for (unsigned operand = 1; operand < context.inputCount(); ++operand) {
    if (context.in(operand).element != first.element)
      return context.error("operands have different element types");
    llvm::Expected<Extents> wider = broadcastShape(context, shape, context.in(operand).shape);
    if (!wider)
      return wider.takeError();
    shape = *wider;
  }
  llvm::Expected<TensorView> y = context.output(0, first.element, shape);
  if (!y)
    return y.takeError();
  return dispatch(NumericTypes(), context, first.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    copyStrided(shape, broadcastStrides(first, shape), first.as<T>(), y->as<T>());
    for (unsigned operand = 1; operand < context.inputCount(); ++operand)
      broadcastLoop<T, T, T>(context, shape, *y, context.in(operand), y->as<T>(), [&](T a, T b) {
        return load(b) != load(b) || better(load(b), load(a)) ? b : a;
      });
    return llvm::Error::success();
  });
}

llvm::Error min(KernelContext& context) { return fold(context, std::less<>()); }
llvm::Error max(KernelContext& context) { return fold(context, std::greater<>()); }

} // namespace

void register_binary(KernelRegistry& registry) {
  registry.add("Add", 7, add);
  registry.add("Sub", 7, sub);
  registry.add("Mul", 7, mul);
  registry.add("Div", 7, div);
  registry.add("Mod", 10, mod);
  registry.add("Pow", 7, pow);
  registry.add("Min", 8, min);
  registry.add("Max", 8, max);
}

} // namespace kvopt::kernels
