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

TensorView QuantizedCache::scaleSlots(const TensorView& scales) const {
  TensorView view = cache.slots(scales);
  unsigned column = cache.isTransposed() ? 2 : 3;
  view.shape.erase(view.shape.begin() + column);
  view.strides.erase(view.strides.begin() + column);
  return view;
}

llvm::Expected<QuantizedCache::Slots>
QuantizedCache::append(KernelContext& context, llvm::ArrayRef<int64_t> lengths) const {
  auto codes = cache.present(context);
  if (!codes)
    return codes.takeError();
  auto storage = presentStorage(context, operands.presentScale, operands.pastScale);
  if (!storage)
    return storage.takeError();
  const Slots present{std::move(*codes), scaleSlots(*storage)};
  const TensorView& fresh = cache.freshRows();
  const int64_t heads = fresh.shape[1], units = fresh.shape[0] * heads;
  const auto width = static_cast<size_t>(cache.width());
  const bool isPacked = present.codes.element == ElementType::UInt8;
  const int64_t slotStride = present.codes.strides[cache.isTransposed() ? 3 : 2];
  const int64_t columnStride = present.codes.strides[cache.isTransposed() ? 2 : 3];
  // A row whose columns are far apart is made in a row of its own.
  size_t asideBytes = 0;
  if (cache.isTransposed() &&
      __builtin_mul_overflow(static_cast<size_t>(units), width, &asideBytes))
    return context.error("the new rows do not fit in the address space");
  auto aside = context.scratch(asideBytes);
  if (!aside)
    return aside.takeError();
  const int64_t rowBytes = cache.width() * int64_t{*byteWidth(fresh.element)};
  auto writeRows = [&](int64_t unit) {
    const int64_t batch = unit / heads, head = unit % heads;
    const int64_t first = lengths[static_cast<size_t>(batch)];
    const std::byte* row = fresh.data + unit * cache.rows() * rowBytes;
    auto* to = reinterpret_cast<int8_t*>(present.codes.data) + batch * present.codes.strides[0] +
               head * present.codes.strides[1] + first * slotStride;
    float* scale = present.scales.as<float>() + batch * present.scales.strides[0] +
                   head * present.scales.strides[1] + first * present.scales.strides[2];
    auto* apart = reinterpret_cast<int8_t*>(aside->data());
    if (cache.isTransposed())
      apart += static_cast<size_t>(unit) * width;
    for (int64_t i = 0; i < cache.rows() && isPacked; ++i, row += rowBytes, to += slotStride)
      scale[i * present.scales.strides[2]] = quantizeFourBitRow(
          row, *storageOf(fresh.element), cache.width(), reinterpret_cast<uint8_t*>(to));
    for (int64_t i = 0; i < cache.rows() && !isPacked; ++i, row += rowBytes, to += slotStride) {
      int8_t* out = cache.isTransposed() ? apart : to;
      scale[i * present.scales.strides[2]] =
          quantizeRow(row, *storageOf(fresh.element), width, out);
      if (cache.isTransposed())
        for (size_t column = 0; column < width; ++column)
          to[static_cast<int64_t>(column) * columnStride] = apart[column];
    }
  };
  // Fewer elements are not worth waking another thread.
  constexpr int64_t fewElements = 32768;
  if (fresh.elementCount() > fewElements)
    context.parallelFor(units, writeRows);
  else
    for (int64_t unit = 0; unit < units; ++unit)
      writeRows(unit);
  const int64_t codeBytes = isPacked ? FourBitRow{cache.width()}.bytes() : cache.width();
  context.noteCacheWrite(units * cache.rows() * (codeBytes + static_cast<int64_t>(sizeof(float))));
  return present;
}

} // namespace kvopt::runtime
