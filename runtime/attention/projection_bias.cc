// Addition of a projection's bias to heads.
#include "runtime/attention/projection_bias.h"

#include "runtime/attention/attention_heads.h"
#include "runtime/kernels/support/element_dispatch.h"

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

llvm::Expected<TensorView> withProjectionBias(KernelContext& context, const TensorView& heads,
                                              unsigned operand, int64_t first) {
  auto sum = scratchTensor(context, heads.element, heads.shape);
  if (!sum)
    return sum;
  const TensorView& bias = context.in(operand);
  const Extents& shape = heads.shape;
  llvm::Error error =
      dispatch(TypeList<float, Float16, BFloat16>(), context, heads.element, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        T* out = sum->template as<T>();
        if (sum->elementCount() == 0)
          return llvm::Error::success();
        for (int64_t batch = 0; batch < shape[0]; ++batch)
          for (int64_t head = 0; head < shape[1]; ++head)
            for (int64_t row = 0; row < shape[2]; ++row)
              for (int64_t d = 0; d < shape[3]; ++d) {
                const T x = heads.as<T>()[batch * heads.strides[0] + head * heads.strides[1] +
                                          row * heads.strides[2] + d * heads.strides[3]];
                const T b = bias.as<T>()[first + head * shape[3] + d];
                *out++ = store<T>(load(x) + load(b));
              }
        return llvm::Error::success();
      });
  if (error)
    return error;
  return sum;
}

} // namespace kvopt::runtime
