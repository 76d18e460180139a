// Swish and SwiGLU:
//
//   Swish    y = x / (1 + e^(-alpha x))
//   SwiGLU   y = Swish(a) * b
//
// Versions: Swish from opset 24, SwiGLU from 28.
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"

#include <algorithm>
#include <cmath>

namespace kvopt::kernels {
using namespace runtime;

namespace {

llvm::Error gated(KernelContext& context, bool hasFactor) {
  const TensorView& x = context.in(0);
  const TensorView* factor = hasFactor ? &context.in(1) : nullptr;
  if (factor && (factor->element != x.element || factor->shape != x.shape))
    return context.error("both operands must have one element type and shape");
  const float alpha = context.node().floatAttr("alpha", 1.0f);
  return dispatch(FloatTypes(), context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    using A = ArithmeticType<T>;
    llvm::Expected<TensorView> y = context.output(0, x.element, x.shape);
    if (!y)
      return y.takeError();
    T* out = y->template as<T>();
    forElements(context, x.elementCount(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const A value = load(x.as<T>()[i]);
        const A swish = value / (1 + std::exp(-static_cast<A>(alpha) * value));
        // The standard rounds Swish(a) to the element type before the product.
        out[i] = store<T>(factor ? load(store<T>(swish)) * load(factor->as<T>()[i]) : swish);
      }
    });
    return llvm::Error::success();
  });
}

llvm::Error swish(KernelContext& context) { return gated(context, false); }
llvm::Error swiGlu(KernelContext& context) { return gated(context, true); }

} // namespace

void register_swish(KernelRegistry& registry) {
  registry.add("Swish", 24, swish);
  registry.add("SwiGLU", 28, swiGlu);
}

} // namespace kvopt::kernels
