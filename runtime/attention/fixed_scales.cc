// Codes of new rows, and attention over caches of codes with fixed scales.
#include "runtime/attention/fixed_scales.h"

#include "runtime/attention/attention_heads.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/memory/element_storage.h"

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;
using namespace simd;

namespace {

/// Calls body(unit) for units with `elements` elements in total.
void forEachUnit(KernelContext& context, int64_t elements, int64_t units,
                 llvm::function_ref<void(int64_t)> body) {
  // Too few elements to be worth waking another thread.
  constexpr int64_t fewElements = 32768;
  if (elements > fewElements)
    return context.parallelFor(units, body);
  for (int64_t unit = 0; unit < units; ++unit)
    body(unit);
}

/// One number as the scale of every row of a cache.
TensorView sameForAllRows(const TensorView& codes, float* scale) {
  TensorView view;
  view.element = ElementType::Float;
  view.shape = {codes.shape[0], codes.shape[1], codes.shape[2]};
  view.strides = {0, 0, 0};
  view.data = reinterpret_cast<std::byte*>(scale);
  return view;
}

/// Computes `to` = `from` * (scale of the column / common) in f32, for tensors [B,H,S,D]. Head h
/// has the scales of head h / group.
void multiplyColumns(KernelContext& context, const FixedScales& scales, float common, int64_t group,
                     const TensorView& from, const TensorView& to) {
  const FloatStorage storage = *storageOf(from.element);
  const int64_t elementBytes = *memoryWidth(from.element);
  const int64_t heads = from.shape[1];
  forEachUnit(context, from.elementCount(), from.shape[0] * heads, [&](int64_t unit) {
    const int64_t batch = unit / heads, head = unit % heads;
    for (int64_t row = 0; row < from.shape[2]; ++row) {
      const std::byte* numbers =
          from.data +
          elementBytes * (batch * from.strides[0] + head * from.strides[1] + row * from.strides[2]);
      float* products =
          to.as<float>() + batch * to.strides[0] + head * to.strides[1] + row * to.strides[2];
      multiplyByScales(numbers, storage, scales, head / group, common, products);
    }
  });
}

} // namespace

void writeCodes(KernelContext& context, const FixedScales& scales, CodeForm form,
                const TensorView& from, const TensorView& to) {
  const FloatStorage storage = *storageOf(from.element);
  const int64_t elementBytes = *memoryWidth(from.element);
  forEachUnit(context, from.elementCount(), from.shape[1], [&](int64_t head) {
    for (int64_t row = 0; row < from.shape[2]; ++row) {
      const std::byte* numbers =
          from.data + elementBytes * (head * from.strides[1] + row * from.strides[2]);
      writeFixedScaleRow(numbers, storage, scales, head, form,
                         to.data + head * to.strides[1] + row * to.strides[2]);
    }
  });
}

llvm::Error setRowScales(KernelContext& context, const FixedScaleCaches& caches,
                         AttentionOperands& operands) {
  auto scales = floatScratch(context, 2);
  if (!scales)
    return scales.takeError();
  const int64_t heads = operands.key.shape[1];
  (*scales)[0] = caches.key.perColumn ? commonScale(caches.key, heads) : caches.key.numbers[0];
  (*scales)[1] = caches.value.perColumn ? 1.0f : caches.value.numbers[0];
  operands.keyScales = sameForAllRows(operands.key, &(*scales)[0]);
  operands.valueScales = sameForAllRows(operands.value, &(*scales)[1]);
  operands.fourBitForm = CodeForm::nibbles;
  operands.fourBitColumns = caches.value.width;
  return llvm::Error::success();
}

llvm::Error runFixedScaleAttention(KernelContext& context, const FixedScaleCaches& caches,
                                   AttentionOperands operands, const TensorView& output) {
  if (output.elementCount() == 0)
    return llvm::Error::success();
  const int64_t heads = operands.query.shape[1], group = heads / operands.key.shape[1];
  if (caches.key.perColumn) {
    auto query = scratchTensor(context, ElementType::Float, operands.query.shape);
    if (!query)
      return query.takeError();
    multiplyColumns(context, caches.key, operands.keyScales->as<float>()[0], group, operands.query,
                    *query);
    operands.query = *query;
  }
  if (!caches.value.perColumn)
    return runAttention(context, operands, viewOfHeads(output, heads));
  auto numbers = floatResult(context, output);
  if (!numbers)
    return numbers.takeError();
  const TensorView sums =
      viewOfHeads(TensorView::contiguous(ElementType::Float, output.shape,
                                         reinterpret_cast<std::byte*>(*numbers)),
                  heads);
  if (llvm::Error error = runAttention(context, operands, sums))
    return error;
  multiplyColumns(context, caches.value, 1.0f, group, sums, sums);
  storeFloats(*numbers, output);
  return llvm::Error::success();
}

} // namespace kvopt::runtime
