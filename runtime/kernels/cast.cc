// Cast and CastLike: y = x in another element type.
//
// Versions: Cast from opset 6 (before, text named the type), CastLike from 15.
#include "runtime/element_dispatch.h"

#include <cmath>

namespace kvopt {
namespace {

/// Floating point to integer truncates towards zero; out of range saturates and NaN is 0 (both are
/// undefined in ONNX). Integer to integer wraps. Anything but zero is true. Rounds once: 16-bit
/// results go through f32, from double with the f32 rounded to odd.
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
    // Round to odd keeps the information that the second rounding needs.
    const double wide = static_cast<double>(x);
    float narrow = static_cast<float>(wide);
    if (std::isfinite(narrow) && static_cast<double>(narrow) != wide &&
        (std::bit_cast<uint32_t>(narrow) & 1u) == 0)
      narrow = std::nextafter(narrow, static_cast<double>(narrow) < wide
                                          ? std::numeric_limits<float>::infinity()
                                          : -std::numeric_limits<float>::infinity());
    return store<To>(narrow);
  } else {
    return store<To>(static_cast<Target>(x));
  }
}

llvm::Error castTo(KernelContext& context, ElementType target) {
  const TensorView& x = context.in(0);
  return dispatch(NumericAndBoolTypes(), context, x.element, [&](auto fromTag) {
    using From = typename decltype(fromTag)::Type;
    return dispatch(NumericAndBoolTypes(), context, target, [&](auto toTag) -> llvm::Error {
      using To = typename decltype(toTag)::Type;
      llvm::Expected<TensorView> y = context.output(0, target, x.shape);
      if (!y)
        return y.takeError();
      const From* in = x.as<From>();
      To* out = y->template as<To>();
      for (int64_t i = 0, count = x.elementCount(); i < count; ++i)
        if constexpr (std::is_same_v<From, To> && !std::is_same_v<To, Bool>)
          out[i] = in[i];
        else
          out[i] = convert<To>(in[i]);
      return llvm::Error::success();
    });
  });
}

llvm::Error cast(KernelContext& context) {
  const int64_t target = context.node().intAttr("to", 0);
  if (target < 0 || target > INT32_MAX)
    return context.error(fmt::format("element type number {} is not known", target));
  return castTo(context, static_cast<ElementType>(target));
}

llvm::Error castLike(KernelContext& context) { return castTo(context, context.in(1).element); }

} // namespace

void register_cast(KernelRegistry& registry) {
  registry.add("Cast", 6, cast);
  registry.add("CastLike", 15, castLike);
}

} // namespace kvopt
