// Checking and writing of quantized caches.
#include "runtime/attention/quantized_cache.h"
#include "runtime/memory/element_storage.h"

#include "runtime/exec/input_binding.h"
#include "runtime/simd/four_bit_rows.h"
#include "runtime/simd/quantize_row.h"
#include "support/format.h"

namespace kvopt::runtime {
using namespace ir;
using namespace simd;

llvm::Expected<QuantizedCache> QuantizedCache::create(const KernelContext& context,
                                                      const Operands& operands) {
  auto cache = InPlaceCache::create(context, operands.codes);
  if (!cache)
    return cache.takeError();
  if (!storageOf(cache->freshRows().element))
    return context.error(fmt::format("new {} of element type {} are not supported",
                                     operands.codes.name, onnxName(cache->freshRows().element)));
  const TensorView& scale = context.in(operands.pastScale);
  Extents expected = context.in(operands.codes.past).shape;
  expected[cache->cacheLayout().columnAxis()] = 1;
  if (scale.element != ElementType::Float || scale.shape != expected)
    return context.error(fmt::format("scales of the {} are {} {}, they should be float {}",
                                     operands.codes.name, onnxName(scale.element),
                                     extentsText(scale.shape), extentsText(expected)));
  return QuantizedCache(std::move(*cache), operands, scale);
}

CodeSlots QuantizedCache::slotsOf(TensorView codes, const TensorView& scales) const {
  CodeSlots slots{std::move(codes), cache.slots(scales), cache.isTransposed()};
  const unsigned column = cache.isTransposed() ? 2 : 3;
  slots.scales.shape.erase(slots.scales.shape.begin() + column);
  slots.scales.strides.erase(slots.scales.strides.begin() + column);
  return slots;
}

int64_t QuantizedCache::rowBytes() const {
  const int64_t codeBytes =
      operands.codes.held == ElementType::UInt8 ? FourBitRow{cache.width()}.bytes() : cache.width();
  return codeBytes + static_cast<int64_t>(sizeof(float));
}

llvm::Expected<CodeSlots> QuantizedCache::present(KernelContext& context) const {
  auto codes = cache.present(context);
  if (!codes)
    return codes.takeError();
  auto scales = presentStorage(context, operands.presentScale, operands.pastScale);
  if (!scales)
    return scales.takeError();
  return slotsOf(std::move(*codes), *scales);
}

/// Writes rows of one batch row and head.
void QuantizedCache::writeUnit(const CodeSlots& slots, int64_t unit, const RowSpan& span) const {
  const TensorView& fresh = cache.freshRows();
  const FloatStorage storage = *storageOf(fresh.element);
  const int64_t batch = unit / fresh.shape[1], head = unit % fresh.shape[1];
  const auto width = static_cast<size_t>(cache.width());
  const int64_t freshBytes = cache.width() * int64_t{*byteWidth(fresh.element)};
  const std::byte* row = fresh.data + (unit * cache.rows() + span.first) * freshBytes;
  auto* to = reinterpret_cast<int8_t*>(slots.codes.data) + batch * slots.codes.strides[0] +
             head * slots.codes.strides[1] + span.slot * slots.slotStride();
  const int64_t scaleStride = slots.scales.strides[2];
  float* scale = slots.scales.as<float>() + batch * slots.scales.strides[0] +
                 head * slots.scales.strides[1] + span.slot * scaleStride;
  const bool isPacked = slots.codes.element == ElementType::UInt8;
  // A row whose columns are far apart is made in a row of its own.
  llvm::SmallVector<int8_t, 1024> apart(slots.isTransposed ? width : 0);
  for (int64_t i = 0; i < span.count; ++i, row += freshBytes, to += slots.slotStride()) {
    scale[i * scaleStride] =
        isPacked ? quantizeFourBitRow(row, storage, cache.width(), reinterpret_cast<uint8_t*>(to))
                 : quantizeRow(row, storage, width, slots.isTransposed ? apart.data() : to);
    for (size_t column = 0; column < apart.size(); ++column)
      to[static_cast<int64_t>(column) * slots.columnStride()] = apart[column];
  }
}

void QuantizedCache::writeRows(KernelContext& context, const CodeSlots& slots,
                               SpansOf spansOf) const {
  const TensorView& fresh = cache.freshRows();
  const int64_t units = fresh.shape[0] * fresh.shape[1];
  auto write = [&](int64_t unit) {
    for (const RowSpan& span : spansOf(unit / fresh.shape[1]))
      writeUnit(slots, unit, span);
  };
  // Fewer elements are not worth waking another thread.
  constexpr int64_t fewElements = 32768;
  if (fresh.elementCount() > fewElements)
    context.parallelFor(units, write);
  else
    for (int64_t unit = 0; unit < units; ++unit)
      write(unit);
}

llvm::Expected<CodeSlots> QuantizedCache::append(KernelContext& context,
                                                 llvm::ArrayRef<int64_t> lengths) const {
  auto slots = present(context);
  if (!slots)
    return slots;
  writeRows(context, *slots, [&](int64_t batch) {
    return llvm::SmallVector<RowSpan, 2>{{0, lengths[static_cast<size_t>(batch)], cache.rows()}};
  });
  const TensorView& fresh = cache.freshRows();
  context.noteCacheWrite(fresh.shape[0] * fresh.shape[1] * cache.rows() * rowBytes());
  return slots;
}

void attendTo(const CodeSlots& keys, const CodeSlots& values, AttentionOperands& operands) {
  operands.key = keys.codes;
  operands.keyScales = keys.scales;
  operands.keyTransposed = keys.isTransposed;
  operands.value = values.codes;
  operands.valueScales = values.scales;
}

} // namespace kvopt::runtime
