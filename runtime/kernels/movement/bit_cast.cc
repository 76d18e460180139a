// BitCast (opset 26): the same bits as elements of another type with the same number of bits.
#include "runtime/exec/kernel.h"
#include "support/format.h"

#include <cstring>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error bitCast(KernelContext& context) {
  const TensorView& x = context.in(0);
  const int64_t to = context.node().intAttr("to", 0);
  const ElementType target =
      to > 0 && to <= INT32_MAX ? static_cast<ElementType>(to) : ElementType::Undefined;
  const std::optional<unsigned> width = byteWidth(x.element);
  if (!width || byteWidth(target) != width)
    return context.error(
        formatted("the bits of {} are not those of element type {}", onnxName(x.element), to));
  llvm::Expected<TensorView> y = context.output(0, target, x.shape);
  if (!y)
    return y.takeError();
  const auto bytes = static_cast<size_t>(x.byteSize());
  if (bytes != 0)
    std::memcpy(y->data, x.data, bytes);
  return llvm::Error::success();
}

} // namespace

void register_bit_cast(KernelRegistry& registry) { registry.add("BitCast", 26, bitCast); }

} // namespace kvopt::kernels
