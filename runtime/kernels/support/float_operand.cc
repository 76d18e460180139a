// Conversion of whole operands.
#include "runtime/kernels/support/float_operand.h"

#include "runtime/simd/elementwise.h"
#include "support/format.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;
using namespace simd;

llvm::Expected<float*> floatScratch(KernelContext& context, int64_t count) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(count), sizeof(float), &bytes))
    return context.error("a working copy does not fit in the address space");
  auto memory = context.scratch(bytes);
  if (!memory)
    return memory.takeError();
  return reinterpret_cast<float*>(memory->data());
}

llvm::Expected<const float*> floatsOf(KernelContext& context, const TensorView& tensor) {
  assert(tensor.isContiguous());
  if (tensor.element == ElementType::Float)
    return tensor.as<float>();
  if (tensor.element != ElementType::Float16 && tensor.element != ElementType::BFloat16)
    return context.error(
        formatted("element type {} is not supported", onnxName(tensor.element).str()));
  auto floats = floatScratch(context, tensor.elementCount());
  if (!floats)
    return floats.takeError();
  auto count = static_cast<size_t>(tensor.elementCount());
  if (tensor.element == ElementType::Float16)
    convertF16ToF32(tensor.as<uint16_t>(), *floats, count);
  else
    convertBf16ToF32(tensor.as<uint16_t>(), *floats, count);
  return *floats;
}

llvm::Expected<float*> floatResult(KernelContext& context, const TensorView& output) {
  if (output.element == ElementType::Float)
    return output.as<float>();
  return floatScratch(context, output.elementCount());
}

void storeFloats(const float* values, const TensorView& output) {
  auto count = static_cast<size_t>(output.elementCount());
  if (output.element == ElementType::Float16)
    convertF32ToF16(values, output.as<uint16_t>(), count);
  else if (output.element == ElementType::BFloat16)
    convertF32ToBf16(values, output.as<uint16_t>(), count);
  else
    assert(values == output.as<float>());
}

} // namespace kvopt::kernels
