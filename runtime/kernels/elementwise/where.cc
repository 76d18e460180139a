// Where: y = condition ? a : b, under broadcasting.
//
// Versions: from opset 9.
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error where(KernelContext& context) {
  const TensorView& condition = context.in(0);
  const TensorView& a = context.in(1);
  const TensorView& b = context.in(2);
  if (condition.element != ElementType::Bool)
    return context.error("the condition must be boolean");
  if (a.element != b.element)
    return context.error("the choices have different element types");
  llvm::Expected<Extents> shape = broadcastShape(context, a.shape, b.shape);
  if (!shape)
    return shape.takeError();
  shape = broadcastShape(context, *shape, condition.shape);
  if (!shape)
    return shape.takeError();
  llvm::Expected<TensorView> y = context.output(0, a.element, *shape);
  if (!y)
    return y.takeError();
  return dispatchWidth(context, a.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    const StridedLoop<3> loop(*shape, {broadcastStrides(condition, *shape),
                                       broadcastStrides(a, *shape), broadcastStrides(b, *shape)});
    forElements(context, y->elementCount(), [&](int64_t begin, int64_t end) {
      T* out = y->as<T>() + begin;
      loop.run(
          begin, end,
          [&](const std::array<int64_t, 3>& at, int64_t count, const std::array<int64_t, 3>& by) {
            for (int64_t i = 0; i < count; ++i)
              *out++ = load(condition.as<Bool>()[at[0] + i * by[0]]) ? a.as<T>()[at[1] + i * by[1]]
                                                                     : b.as<T>()[at[2] + i * by[2]];
          });
    });
    return llvm::Error::success();
  });
}

} // namespace

void register_where(KernelRegistry& registry) { registry.add("Where", 9, where); }

} // namespace kvopt::kernels
