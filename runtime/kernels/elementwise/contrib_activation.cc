// Activations of com.microsoft, y = f(x + bias) with an optional bias over the last axis:
//
//   Gelu, BiasGelu   f(x) = x/2 · (1 + erf(x/√2))
//   FastGelu         f(x) = x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))
//   QuickGelu        f(x) = x / (1 + e^(-alpha x))
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"

#include <cmath>

namespace kvopt::kernels {
using namespace runtime;

namespace {

template <class F> llvm::Error activate(KernelContext& context, bool biased, F f) {
  const TensorView& x = context.in(0);
  const TensorView* bias = biased ? context.input(1) : nullptr;
  if (bias && (x.rank() == 0 || bias->rank() != 1 || bias->shape[0] != x.shape.back() ||
               bias->element != x.element))
    return context.error("the bias must be as long as a row and of the operand's element type");
  return dispatch(FloatTypes(), context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    llvm::Expected<TensorView> y = context.output(0, x.element, x.shape);
    if (!y)
      return y.takeError();
    const T* in = x.as<T>();
    T* out = y->as<T>();
    const int64_t width = bias ? bias->shape[0] : 1;
    forElements(context, x.elementCount(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto value = load(in[i]);
        out[i] = store<T>(f(bias ? value + load(bias->as<T>()[i % width]) : value));
      }
    });
    return llvm::Error::success();
  });
}

template <class T> T exactGelu(T x) {
  return T(0.5) * x * (1 + std::erf(x * T(0.70710678118654752440)));
}

llvm::Error contribGelu(KernelContext& context) {
  return activate(context, false, [](auto x) { return exactGelu(x); });
}
llvm::Error biasGelu(KernelContext& context) {
  return activate(context, true, [](auto x) { return exactGelu(x); });
}
llvm::Error fastGelu(KernelContext& context) {
  return activate(context, true, [](auto x) {
    using T = decltype(x);
    return T(0.5) * x * (1 + std::tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
  });
}
llvm::Error quickGelu(KernelContext& context) {
  const float alpha = context.node().floatAttr("alpha", 1.702f);
  return activate(context, false, [alpha](auto x) {
    using T = decltype(x);
    return x / (1 + std::exp(-T(alpha) * x));
  });
}

} // namespace

void register_contrib_activation(KernelRegistry& registry) {
  registry.add("com.microsoft::Gelu", 1, contribGelu);
  registry.add("com.microsoft::BiasGelu", 1, biasGelu);
  registry.add("com.microsoft::FastGelu", 1, fastGelu);
  registry.add("com.microsoft::QuickGelu", 1, quickGelu);
}

} // namespace kvopt::kernels
