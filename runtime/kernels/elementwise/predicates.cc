// Operators with boolean results: comparisons, logic, IsNaN, IsInf.
//
// Versions: Not in every opset; Equal, Less, Greater, And and Or from 7 (before, attributes
// requested broadcasting), IsNaN from 9, IsInf from 10, LessOrEqual and GreaterOrEqual from 12.
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"

#include <cmath>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// c = f(a, b), a boolean.
template <class List, class F>
llvm::Error relate(KernelContext& context, List types, const TensorView& a, const TensorView& b,
                   F f) {
  llvm::Expected<Extents> shape = commonShape(context);
  if (!shape)
    return shape.takeError();
  llvm::Expected<TensorView> c = context.output(0, ElementType::Bool, *shape);
  if (!c)
    return c.takeError();
  return dispatch(types, context, a.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    broadcastLoop<Bool, T, T>(context, *shape, a, b, c->as<Bool>(),
                              [&](T x, T y) { return store<Bool>(f(load(x), load(y))); });
    return llvm::Error::success();
  });
}
template <class List, class F> llvm::Error relate(KernelContext& context, List types, F f) {
  return relate(context, types, context.in(0), context.in(1), f);
}

llvm::Error isLess(KernelContext& context, const TensorView& a, const TensorView& b) {
  return relate(context, NumericTypes(), a, b, std::less<>());
}
llvm::Error isAtMost(KernelContext& context, const TensorView& a, const TensorView& b) {
  return relate(context, NumericTypes(), a, b, std::less_equal<>());
}

llvm::Error equal(KernelContext& context) {
  return relate(context, NumericAndBoolTypes(), std::equal_to<>());
}
llvm::Error less(KernelContext& context) { return isLess(context, context.in(0), context.in(1)); }
llvm::Error lessOrEqual(KernelContext& context) {
  return isAtMost(context, context.in(0), context.in(1));
}
llvm::Error greater(KernelContext& context) {
  return isLess(context, context.in(1), context.in(0));
}
llvm::Error greaterOrEqual(KernelContext& context) {
  return isAtMost(context, context.in(1), context.in(0));
}
llvm::Error logicalAnd(KernelContext& context) {
  return relate(context, TypeList<Bool>(), std::logical_and<>());
}
llvm::Error logicalOr(KernelContext& context) {
  return relate(context, TypeList<Bool>(), std::logical_or<>());
}
llvm::Error logicalXor(KernelContext& context) {
  return relate(context, TypeList<Bool>(), std::not_equal_to<>());
}

/// y[i] = f(x[i]), a boolean.
template <class List, class F> llvm::Error test(KernelContext& context, List types, F f) {
  const TensorView& x = context.in(0);
  llvm::Expected<TensorView> y = context.output(0, ElementType::Bool, x.shape);
  if (!y)
    return y.takeError();
  return dispatch(types, context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    for (int64_t i = 0, count = x.elementCount(); i < count; ++i)
      y->as<Bool>()[i] = store<Bool>(f(load(x.as<T>()[i])));
    return llvm::Error::success();
  });
}

llvm::Error logicalNot(KernelContext& context) {
  return test(context, TypeList<Bool>(), [](bool x) { return !x; });
}
llvm::Error isNaN(KernelContext& context) {
  return test(context, FloatTypes(), [](auto x) { return std::isnan(x); });
}
llvm::Error isInf(KernelContext& context) {
  const bool positive = context.node().intAttr("detect_positive", 1) != 0;
  const bool negative = context.node().intAttr("detect_negative", 1) != 0;
  return test(context, FloatTypes(),
              [=](auto x) { return std::isinf(x) && (x > 0 ? positive : negative); });
}

} // namespace

void register_predicates(KernelRegistry& registry) {
  registry.add("Equal", 7, equal);
  registry.add("Less", 7, less);
  registry.add("LessOrEqual", 12, lessOrEqual);
  registry.add("Greater", 7, greater);
  registry.add("GreaterOrEqual", 12, greaterOrEqual);
  registry.add("And", 7, logicalAnd);
  registry.add("Or", 7, logicalOr);
  registry.add("Xor", 7, logicalXor);
  registry.add("Not", 1, logicalNot);
  registry.add("IsNaN", 9, isNaN);
  registry.add("IsInf", 10, isInf);
}

} // namespace kvopt::kernels
