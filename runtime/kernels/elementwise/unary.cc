// Elementwise math with one operand.
//
// Versions: Softplus in every opset; Neg, Abs, Sqrt, Reciprocal, Exp, Log, Tanh, Sigmoid, Relu,
// Floor and Ceil from 6, Sin and Cos from 7, Erf and Sign from 9, Round from 11, Gelu from 20.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/narrow_floats.h"

#include <algorithm>
#include <cmath>

namespace kvopt::kernels {
using namespace runtime;

namespace {

/// y[i] = f(x[i]), for the types of the list.
template <class List, class F> llvm::Error map(KernelContext& context, List types, F f) {
  const TensorView& x = context.in(0);
  llvm::Expected<TensorView> y = context.output(0, x.element, x.shape);
  if (!y)
    return y.takeError();
  return dispatch(types, context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    const T* in = x.as<T>();
    T* out = y->as<T>();
    forElements(context, x.elementCount(), [&](int64_t begin, int64_t end) {
      if constexpr (isNarrowFloat<T>)
        mapNarrow(in + begin, out + begin, end - begin, f);
      else
        for (int64_t i = begin; i < end; ++i)
          out[i] = store<T>(f(load(in[i])));
    });
    return llvm::Error::success();
  });
}

llvm::Error neg(KernelContext& context) {
  return map(context, joined(FloatTypes(), SignedTypes()), [](auto x) {
    using T = decltype(x);
    if constexpr (std::is_integral_v<T>)
      return wrapping<T>(T(0), x, std::minus<>());
    else
      return -x;
  });
}

llvm::Error abs(KernelContext& context) {
  return map(context, NumericTypes(), [](auto x) {
    using T = decltype(x);
    if constexpr (std::is_floating_point_v<T>)
      return std::abs(x);
    else
      return x < T(0) ? wrapping<T>(T(0), x, std::minus<>()) : x;
  });
}

llvm::Error sqrt(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) { return std::sqrt(x); });
}
llvm::Error reciprocal(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) { return 1 / x; });
}
llvm::Error exp(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) { return std::exp(x); });
}
llvm::Error log(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) { return std::log(x); });
}
llvm::Error erf(KernelContext& context) {
  return map(context, NumericTypes(), [](auto x) {
    using T = decltype(x);
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(std::erf(static_cast<double>(x)));
    else
      return std::erf(x);
  });
}
llvm::Error tanh(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) { return std::tanh(x); });
}
llvm::Error sin(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) { return std::sin(x); });
}
llvm::Error cos(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) { return std::cos(x); });
}
llvm::Error floor(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) { return std::floor(x); });
}
llvm::Error ceil(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) { return std::ceil(x); });
}

/// Nearest integer, ties to even.
llvm::Error round(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) { return std::nearbyint(x); });
}

/// -1, 0 or 1; NaN for NaN
llvm::Error sign(KernelContext& context) {
  return map(context, NumericTypes(), [](auto x) {
    using T = decltype(x);
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
  });
}

/// log(1 + e^x)
llvm::Error softplus(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) {
    using T = decltype(x);
    return std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)));
  });
}

/// 1 / (1 + e^-x)
llvm::Error sigmoid(KernelContext& context) {
  return map(context, FloatTypes(), [](auto x) { return 1 / (1 + std::exp(-x)); });
}

/// max(x, 0), NaN for NaN
llvm::Error relu(KernelContext& context) {
  return map(context, joined(FloatTypes(), SignedTypes()),
             [](auto x) { return x < decltype(x)(0) ? decltype(x)(0) : x; });
}

/// x/2 · (1 + erf(x/√2)), or with approximate = "tanh"
/// x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))
llvm::Error gelu(KernelContext& context) {
  const llvm::StringRef approximate = context.node().stringAttr("approximate", "none");
  if (approximate == "none")
    return map(context, FloatTypes(), [](auto x) {
      using T = decltype(x);
      return T(0.5) * x * (1 + std::erf(x * T(0.70710678118654752440)));
    });
  if (approximate == "tanh")
    return map(context, FloatTypes(), [](auto x) {
      using T = decltype(x);
      const T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
      return T(0.5) * x * (1 + std::tanh(inner));
    });
  return context.error(formatted("approximate = '{}' is not known", approximate.str()));
}

} // namespace

void register_unary(KernelRegistry& registry) {
  registry.add("Neg", 6, neg);
  registry.add("Abs", 6, abs);
  registry.add("Sqrt", 6, sqrt);
  registry.add("Reciprocal", 6, reciprocal);
  registry.add("Exp", 6, exp);
  registry.add("Log", 6, log);
  registry.add("Erf", 9, erf);
  registry.add("Tanh", 6, tanh);
  registry.add("Sigmoid", 6, sigmoid);
  registry.add("Relu", 6, relu);
  registry.add("Gelu", 20, gelu);
  registry.add("Sin", 7, sin);
  registry.add("Cos", 7, cos);
  registry.add("Floor", 6, floor);
  registry.add("Ceil", 6, ceil);
  registry.add("Round", 11, round);
  registry.add("Sign", 9, sign);
  registry.add("Softplus", 1, softplus);
}

} // namespace kvopt::kernels
