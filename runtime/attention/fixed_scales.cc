// Codes of new rows, and attention over caches of codes with fixed scales.
#include "runtime/attention/fixed_scales.h"

#include "runtime/attention/attention_heads.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/memory/element_storage.h"
#include "support/half.h"

#include <algorithm>
#include <cmath>

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;
using namespace simd;

namespace {

float storedNumber(const std::byte* row, FloatStorage storage, int64_t at) {
  if (storage == FloatStorage::f32)
    return reinterpret_cast<const float*>(row)[at];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(row)[at];
  return storage == FloatStorage::f16 ? f16ToFloat(bits) : bf16ToFloat(bits);
}

float inverseOf(float scale) { return scale == 0.0f ? 1.0f : 1.0f / scale; }

int codeOf(float number, float inverse, float lowest, float largest) {
  // With this order of operands, NaN becomes the largest code.
  return static_cast<int>(std::max(lowest, std::min(largest, std::nearbyint(number * inverse))));
}

void writeByteRow(const std::byte* row, FloatStorage storage, const FixedScales& scales,
                  int64_t head, int8_t* codes) {
  for (int64_t d = 0; d < scales.width; ++d)
    codes[d] = static_cast<int8_t>(
        codeOf(storedNumber(row, storage, d), inverseOf(scales.of(head, d)), -128.0f, 127.0f));
}

void writeNibbleRow(const std::byte* row, FloatStorage storage, const FixedScales& scales,
                    int64_t head, uint8_t* packed) {
  const auto stored = [&](int64_t d) {
    if (d == scales.width)
      return nibbleOffset;
    return nibbleOffset +
           codeOf(storedNumber(row, storage, d), inverseOf(scales.of(head, d)), -8.0f, 7.0f);
  };
  for (int64_t d = 0; d < scales.width; d += 2)
    packed[d / 2] = static_cast<uint8_t>(stored(d) | stored(d + 1) << 4);
}

/// Power of two above the largest scale. Scales are divided by it before they are multiplied with
/// queries, so that no product exceeds the query's own number.
float commonScale(const FixedScales& scales, int64_t heads) {
  float largest = 0.0f;
  for (int64_t i = 0; i < heads * scales.width; ++i)
    largest = std::max(largest, std::fabs(scales.numbers[i]));
  if (largest == 0.0f || !std::isfinite(largest))
    return 1.0f;
  int exponent = 0;
  std::frexp(largest, &exponent);
  constexpr int largestExponent = 127;
  return std::ldexp(1.0f, std::min(exponent, largestExponent));
}

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
      for (int64_t d = 0; d < scales.width; ++d)
        products[d] = storedNumber(numbers, storage, d) * (scales.of(head / group, d) / common);
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
      std::byte* codes = to.data + head * to.strides[1] + row * to.strides[2];
      if (form == CodeForm::nibbles)
        writeNibbleRow(numbers, storage, scales, head, reinterpret_cast<uint8_t*>(codes));
      else
        writeByteRow(numbers, storage, scales, head, reinterpret_cast<int8_t*>(codes));
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
