// ai.kvopt::QuantizeRows: quantizes rows for caches of codes to which another operator writes them.
#include "runtime/exec/kernel.h"
#include "runtime/memory/element_storage.h"
#include "runtime/simd/quantize_row.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error quantizeRows(KernelContext& context) {
  const TensorView& rows = context.in(0);
  const auto storage = storageOf(rows.element);
  if (!storage || rows.rank() == 0)
    return context.error("rows must be of float32, float16 or bfloat16, and have an axis");
  auto codes = context.output(0, ElementType::Int8, rows.shape);
  if (!codes)
    return codes.takeError();
  Extents extents = rows.shape;
  extents.back() = 1;
  auto scales = context.output(1, ElementType::Float, extents);
  if (!scales)
    return scales.takeError();
  const int64_t width = rows.shape.back();
  const int64_t rowBytes = width * static_cast<int64_t>(*byteWidth(rows.element));
  const int64_t count = scales->elementCount();
  for (int64_t row = 0; row < count; ++row)
    scales->as<float>()[row] =
        simd::quantizeRow(rows.data + row * rowBytes, *storage, static_cast<size_t>(width),
                          codes->as<int8_t>() + row * width);
  return llvm::Error::success();
}

} // namespace

void register_quantize_rows(KernelRegistry& registry) {
  registry.add("ai.kvopt::QuantizeRows", 1, quantizeRows);
}

} // namespace kvopt::kernels
