// Cast and CastLike: y = x in another element type.
//
// Versions: Cast from opset 6 (before, a text specified the type), CastLike from 15.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/narrow_floats.h"
#include "runtime/memory/narrow_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// An f32 adjacent to x, with an odd mantissa if x is not an f32. Rounding it to fewer bits then
/// gives the same result as rounding x.
template <class Source> float roundedToOdd(Source x) {
  const double wide = static_cast<double>(x);
  float narrow = static_cast<float>(wide);
  if (std::isfinite(narrow) && static_cast<double>(narrow) != wide &&
      (std::bit_cast<uint32_t>(narrow) & 1u) == 0)
    narrow = std::nextafter(narrow, static_cast<double>(narrow) < wide
                                        ? std::numeric_limits<float>::infinity()
                                        : -std::numeric_limits<float>::infinity());
  return narrow;
}

/// Conversion that rounds once. Floating point to integer truncates toward zero; out-of-range
/// values saturate and NaN becomes 0 (both are undefined in ONNX). Integer to integer wraps.
/// Nonzero values become true. Conversion from double to 16 bits goes through an f32 that is
/// rounded to odd.
template <class To, class From> To convert(From stored) {
  const ArithmeticType<From> x = load(stored);
  using Source = ArithmeticType<From>;
  using Target = ArithmeticType<To>;
  if constexpr (std::is_same_v<Target, bool>) {
    return store<To>(x != Source(0));
  } else if constexpr (std::is_integral_v<Target> && std::is_floating_point_v<Source>) {
    if (std::isnan(x))
      return To(0);
    const Source beyond = std::ldexp(Source(1), std::numeric_limits<To>::digits);
    if (x >= beyond)
      return std::numeric_limits<To>::max();
    const Source lowest = std::is_signed_v<To> ? -beyond : Source(0);
    return x <= lowest ? std::numeric_limits<To>::min() : static_cast<To>(x);
  } else if constexpr (!std::is_same_v<To, Target> &&
                       (std::is_same_v<Source, double> ||
                        (std::is_integral_v<Source> && sizeof(Source) >= 4))) {
    return store<To>(roundedToOdd(x));
  } else {
    return store<To>(static_cast<Target>(x));
  }
}

/// Conversion to int4, uint4, int2 or uint2: floating point is rounded to the nearest integer, ties
/// to even; then the low bits are kept, as for integers (ONNX's technical pages on these types).
/// NaN becomes 0.
llvm::Error castToSmall(KernelContext& context, const TensorView& x, ElementType target,
                        SmallRange range) {
  llvm::Expected<TensorView> y = context.output(0, target, x.shape);
  if (!y)
    return y.takeError();
  return dispatch(NumericAndBoolTypes(), context, x.element, [&](auto tag) -> llvm::Error {
    using From = typename decltype(tag)::Type;
    for (int64_t i = 0, count = x.elementCount(); i < count; ++i) {
      const ArithmeticType<From> value = load(x.as<From>()[i]);
      int64_t integer = 0;
      if constexpr (std::is_floating_point_v<ArithmeticType<From>>)
        integer = std::isnan(value) ? 0
                                    : static_cast<int64_t>(std::nearbyint(
                                          std::clamp(static_cast<double>(value), -0x1p53, 0x1p53)));
      else
        integer = static_cast<int64_t>(value);
      y->template as<int8_t>()[i] = wrappedInto(range, integer);
    }
    return llvm::Error::success();
  });
}

/// Conversion to a floating-point type of 8 or 4 bits.
llvm::Error castToCodes(KernelContext& context, const TensorView& x, ElementType target) {
  CodeRounding rounding;
  rounding.saturate = context.node().intAttr("saturate", 1) != 0;
  const llvm::StringRef mode = context.node().stringAttr("round_mode", "up");
  const std::optional<ScaleRounding> scale = scaleRoundingFromName(mode);
  if (!scale)
    return context.error(formatted("round_mode '{}' is unknown", mode.str()));
  rounding.scale = *scale;
  llvm::Expected<TensorView> y = context.output(0, target, x.shape);
  if (!y)
    return y.takeError();
  return dispatch(NumericAndBoolTypes(), context, x.element, [&](auto tag) -> llvm::Error {
    using From = typename decltype(tag)::Type;
    for (int64_t i = 0, count = x.elementCount(); i < count; ++i)
      y->template as<uint8_t>()[i] =
          codeOfNumber(target, roundedToOdd(load(x.as<From>()[i])), rounding);
    return llvm::Error::success();
  });
}

llvm::Error castView(KernelContext& context, const TensorView& x, ElementType target) {
  if (const std::optional<SmallRange> range = smallRangeOf(target))
    return castToSmall(context, x, target, *range);
  if (isFloatCode(target))
    return castToCodes(context, x, target);
  auto isKnown = [](auto) { return llvm::Error::success(); };
  if (llvm::Error error = dispatch(NumericAndBoolTypes(), context, target, isKnown))
    return error;
  llvm::Expected<TensorView> y = context.output(0, target, x.shape);
  if (!y)
    return y.takeError();
  return dispatch(NumericAndBoolTypes(), context, x.element, [&](auto fromTag) {
    using From = typename decltype(fromTag)::Type;
    return dispatch(NumericAndBoolTypes(), context, target, [&](auto toTag) -> llvm::Error {
      using To = typename decltype(toTag)::Type;
      const From* in = x.as<From>();
      To* out = y->template as<To>();
      forElements(context, x.elementCount(), [&](int64_t begin, int64_t end) {
        if constexpr (std::is_same_v<From, To> && !std::is_same_v<To, Bool>)
          std::copy(in + begin, in + end, out + begin);
        else if constexpr (isNarrowFloat<From> && std::is_same_v<To, float>)
          widen(in + begin, 1, out + begin, end - begin);
        else if constexpr (std::is_same_v<From, float> && isNarrowFloat<To>)
          narrow(in + begin, out + begin, end - begin);
        else
          std::transform(in + begin, in + end, out + begin, convert<To, From>);
      });
      return llvm::Error::success();
    });
  });
}

llvm::Error castTo(KernelContext& context, ElementType target) {
  TensorView x = context.in(0);
  if (!isFloatCode(x.element)) {
    x.element = inMemoryAs(x.element);
    return castView(context, x, target);
  }
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(x.elementCount()), sizeof(float), &bytes))
    return context.error("a working copy does not fit in the address space");
  llvm::Expected<std::span<std::byte>> memory = context.scratch(bytes);
  if (!memory)
    return memory.takeError();
  const std::array<float, 256>& numbers = numbersOfCodes(x.element);
  const TensorView floats = TensorView::contiguous(ElementType::Float, x.shape, memory->data());
  for (int64_t i = 0, count = x.elementCount(); i < count; ++i)
    floats.as<float>()[i] = numbers[x.as<uint8_t>()[i]];
  return castView(context, floats, target);
}

llvm::Error cast(KernelContext& context) {
  const int64_t target = context.node().intAttr("to", 0);
  if (target < 0 || target > INT32_MAX)
    return context.error(formatted("element type number {} is not known", target));
  return castTo(context, static_cast<ElementType>(target));
}

llvm::Error castLike(KernelContext& context) { return castTo(context, context.in(1).element); }

} // namespace

void register_cast(KernelRegistry& registry) {
  registry.add("Cast", 6, cast);
  registry.add("CastLike", 15, castLike);
}

} // namespace kvopt::kernels
