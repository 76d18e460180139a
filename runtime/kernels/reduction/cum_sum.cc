// Cumulative sums and products along one axis:
//
//   CumSum    y[i] = sum of x[j] over j <= i
//   CumProd   y[i] = product of x[j] over j <= i
//
// exclusive: j < i; reverse: from the end. They are accumulated in double for f32, in f32 for
// 16-bit floats, and rounded once per element.
//
// Versions: CumSum from opset 11, CumProd from 26.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/integer_input.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

template <class Combine>
llvm::Error accumulate(KernelContext& context, int initial, Combine combine) {
  const TensorView& x = context.in(0);
  llvm::Expected<int64_t> asked = integerOf(context, 1);
  if (!asked)
    return asked.takeError();
  llvm::Expected<unsigned> axis = axisOf(context, *asked, x.rank());
  if (!axis)
    return axis.takeError();
  const bool exclusive = context.node().intAttr("exclusive", 0) != 0;
  const bool reverse = context.node().intAttr("reverse", 0) != 0;
  llvm::Expected<TensorView> y = context.output(0, x.element, x.shape);
  if (!y)
    return y.takeError();
  return dispatch(NumericTypes(), context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    using S = SumType<T>;
    const int64_t count = x.elementCount();
    if (count == 0)
      return llvm::Error::success();
    const int64_t length = x.shape[*axis];
    const int64_t stride = x.strides[*axis];
    for (int64_t line = 0; line < count / length; ++line) {
      const int64_t first = line / stride * stride * length + line % stride;
      S total = static_cast<S>(initial);
      for (int64_t i = 0; i < length; ++i) {
        const int64_t at = first + (reverse ? length - 1 - i : i) * stride;
        const S before = total;
        total = combine(total, static_cast<S>(load(x.as<T>()[at])));
        y->template as<T>()[at] =
            store<T>(static_cast<ArithmeticType<T>>(exclusive ? before : total));
      }
    }
    return llvm::Error::success();
  });
}

llvm::Error cumSum(KernelContext& context) { return accumulate(context, 0, std::plus<>()); }
llvm::Error cumProd(KernelContext& context) { return accumulate(context, 1, std::multiplies<>()); }

} // namespace

void register_cum_sum(KernelRegistry& registry) {
  registry.add("CumSum", 11, cumSum);
  registry.add("CumProd", 26, cumProd);
}

} // namespace kvopt::kernels
