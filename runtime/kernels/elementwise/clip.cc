// Clip: y = min(max(x, low), high); NaN stays NaN.
//
// Versions: bounds are attributes in opsets 6 to 10, optional operands from 11.
#include "runtime/kernels/support/element_dispatch.h"

namespace kvopt::kernels {
using namespace runtime;

namespace {

/// An absent bound has no effect. If low > high, the result is high.
template <class T>
llvm::Error clipTo(KernelContext& context, std::optional<ArithmeticType<T>> low,
                   std::optional<ArithmeticType<T>> high) {
  const TensorView& x = context.in(0);
  llvm::Expected<TensorView> y = context.output(0, x.element, x.shape);
  if (!y)
    return y.takeError();
  for (int64_t i = 0, count = x.elementCount(); i < count; ++i) {
    ArithmeticType<T> value = load(x.as<T>()[i]);
    if (low && value < *low)
      value = *low;
    if (high && value > *high)
      value = *high;
    y->as<T>()[i] = store<T>(value);
  }
  return llvm::Error::success();
}

llvm::Error clip(KernelContext& context) {
  const TensorView& x = context.in(0);
  for (unsigned operand = 1; operand <= 2; ++operand)
    if (const TensorView* bound = context.input(operand))
      if (bound->element != x.element || bound->elementCount() != 1)
        return context.error("a bound must be one element of the input's type");
  return dispatch(NumericTypes(), context, x.element, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    std::optional<ArithmeticType<T>> bounds[2];
    for (unsigned operand = 1; operand <= 2; ++operand)
      if (const TensorView* bound = context.input(operand))
        bounds[operand - 1] = load(*bound->as<T>());
    return clipTo<T>(context, bounds[0], bounds[1]);
  });
}

llvm::Error clipByAttributes(KernelContext& context) {
  const float lowest = std::numeric_limits<float>::lowest();
  const float low = context.node().floatAttr("min", lowest);
  const float high = context.node().floatAttr("max", -lowest);
  return dispatch(FloatTypes(), context, context.in(0).element, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return clipTo<T>(context, static_cast<ArithmeticType<T>>(low),
                     static_cast<ArithmeticType<T>>(high));
  });
}

} // namespace

void register_clip(KernelRegistry& registry) {
  registry.add("Clip", 6, clipByAttributes, 10);
  registry.add("Clip", 11, clip);
}

} // namespace kvopt::kernels
