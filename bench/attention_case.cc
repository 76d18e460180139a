// Memory of the cases of attention_bench, and views into it.
#include "bench/attention_case.h"

#include "runtime/memory/page_memory.h"
#include "support/four_bit_row.h"
#include "support/half.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace kvopt {
using namespace runtime;
using namespace simd;

namespace {

/// Exceeds any last-level cache, for the layers of every case together.
constexpr size_t coldBytes = size_t{320} << 20;
/// Maximum size of a layer.
constexpr size_t mostBytes = size_t{768} << 20;

size_t widthOf(CacheType type) { return type == CacheType::f32 ? 4 : holdsCodes(type) ? 1 : 2; }

/// Number of elements, bytes for codes, in a row of `columns` columns.
int64_t rowElements(CacheType type, int64_t columns) {
  return type == CacheType::int4 ? FourBitRow{columns}.bytes() : columns;
}

} // namespace

const char* name(CacheType type) {
  switch (type) {
  case CacheType::f32:
    return "f32";
  case CacheType::f16:
    return "f16";
  case CacheType::bf16:
    return "bf16";
  case CacheType::int8:
    return "int8";
  case CacheType::int4:
    return "int4";
  }
  return "";
}

size_t AttentionCase::cacheBytes() const {
  const int64_t width = rowElements(cache, shape.keyWidth) +
                        (shape.valueOffset < 0 ? rowElements(cache, shape.valueWidth) : 0);
  size_t rows = static_cast<size_t>(shape.kvHeads * totalLength);
  size_t scales = holdsCodes(cache) ? 2 * rows * sizeof(float) : 0;
  return rows * static_cast<size_t>(width) * widthOf(cache) + scales;
}

double AttentionCase::operations() const {
  // Row i of S sees T - S + i + 1 keys.
  const double pairs = static_cast<double>(newRows) *
                       (static_cast<double>(totalLength) - (static_cast<double>(newRows) - 1) / 2);
  return 2 * pairs * static_cast<double>(shape.queryHeads) *
         static_cast<double>(shape.keyWidth + shape.valueWidth);
}

AttentionMemory::AttentionMemory()
    : caches(llvm::cantFail(Buffer::zeros(std::make_shared<Allocator>(), mostBytes))) {
  // As in the runtime's caches after growth.
  preferLargePages(caches->data(), mostBytes);
}

void AttentionMemory::set(const AttentionCase& attentionCase) {
  const bool isFilled = layerBytes != 0 && current.cache == attentionCase.cache;
  current = attentionCase;
  elementBytes = widthOf(current.cache);
  if (!isFilled) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<std::byte> pattern(size_t{1} << 18);
    for (size_t at = 0; at < pattern.size(); at += elementBytes) {
      const float value = normal(random);
      const auto code = static_cast<int8_t>(std::clamp(value * 40, -127.0f, 127.0f));
      const uint16_t bits =
          current.cache == CacheType::f16 ? floatToF16(value) : floatToBf16(value);
      if (current.cache == CacheType::f32)
        std::memcpy(&pattern[at], &value, sizeof value);
      else if (holdsCodes(current.cache))
        std::memcpy(&pattern[at], &code, sizeof code);
      else
        std::memcpy(&pattern[at], &bits, sizeof bits);
    }
    for (size_t at = 0; at < caches->size(); at += pattern.size())
      std::memcpy(caches->data() + at, pattern.data(), pattern.size());
  }
  const AttentionShape& shape = current.shape;
  // Room for additional rows, and distances of planes that are not multiples of a page.
  capacity = current.totalLength + current.totalLength / 8 + 3;
  const auto plane = [&](int64_t width) {
    return static_cast<size_t>(shape.kvHeads * capacity * rowElements(current.cache, width)) *
           elementBytes;
  };
  valueBase = shape.valueOffset < 0 ? plane(shape.keyWidth)
                                    : static_cast<size_t>(shape.valueOffset) * elementBytes;
  layerBytes = plane(shape.keyWidth) + (shape.valueOffset < 0 ? plane(shape.valueWidth) : 0);
  layerBytes = (layerBytes + 63) / 64 * 64;
  scaleBase = layerBytes;
  const auto scales = static_cast<size_t>(2 * shape.kvHeads * capacity);
  if (holdsCodes(current.cache))
    layerBytes += (scales * sizeof(float) + 63) / 64 * 64;
  layers = current.isCold ? std::max<size_t>(2, coldBytes / layerBytes) : 1;
  layers = std::min(layers, caches->size() / layerBytes);
  layer = 0;
  if (holdsCodes(current.cache))
    for (size_t i = 0; i < layers; ++i)
      std::fill_n(reinterpret_cast<float*>(caches->data() + i * layerBytes + scaleBase), scales,
                  0.02f);
  const size_t rows = static_cast<size_t>(shape.queryHeads * current.newRows);
  query.resize(rows * static_cast<size_t>(shape.keyWidth));
  output.resize(rows * static_cast<size_t>(shape.valueWidth));
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  for (float& value : query)
    value = normal(random);
}

AttentionView AttentionMemory::nextLayer() {
  layer = (layer + 1) % layers;
  const AttentionShape& shape = current.shape;
  const bool ownValues = shape.valueOffset < 0;
  const auto strides = [](int64_t heads, int64_t rows, int64_t width) {
    return RowStrides{heads * rows * width, rows * width, width};
  };
  AttentionView view;
  view.batches = 1;
  view.queryHeads = shape.queryHeads;
  view.kvHeads = shape.kvHeads;
  view.queryRows = current.newRows;
  view.keyWidth = shape.keyWidth;
  view.valueWidth = shape.valueWidth;
  view.totalLength = current.totalLength;
  view.cacheStorage = current.cache == CacheType::f32   ? FloatStorage::f32
                      : current.cache == CacheType::f16 ? FloatStorage::f16
                                                        : FloatStorage::bf16;
  view.query = query.data();
  view.key = caches->data() + layer * layerBytes;
  view.value = caches->data() + layer * layerBytes + valueBase;
  view.output = output.data();
  view.queryStrides = strides(shape.queryHeads, current.newRows, shape.keyWidth);
  view.keyStrides = strides(shape.kvHeads, capacity, rowElements(current.cache, shape.keyWidth));
  view.valueStrides =
      strides(shape.kvHeads, capacity,
              rowElements(current.cache, ownValues ? shape.valueWidth : shape.keyWidth));
  view.outputStrides = strides(shape.queryHeads, current.newRows, shape.valueWidth);
  if (holdsCodes(current.cache)) {
    view.keyScales =
        reinterpret_cast<const float*>(caches->data() + layer * layerBytes + scaleBase);
    view.valueScales = view.keyScales + shape.kvHeads * capacity;
    view.keyScaleStrides = view.valueScaleStrides = strides(shape.kvHeads, capacity, 1);
    view.codeForm = current.cache == CacheType::int4 ? CodeForm::fourBitRows : CodeForm::bytes;
  }
  view.scale = 0.08f;
  view.causal = true;
  return view;
}

std::vector<AttentionMemory::Plane> AttentionMemory::planes() const {
  const AttentionShape& shape = current.shape;
  const std::byte* base = caches->data() + layer * layerBytes;
  std::vector<Plane> result;
  const auto add = [&](const std::byte* from, int64_t width, size_t element) {
    const size_t stride = static_cast<size_t>(capacity * width) * element;
    const size_t bytes = static_cast<size_t>(current.totalLength * width) * element;
    for (size_t head = 0; head < static_cast<size_t>(shape.kvHeads); ++head)
      result.push_back({from + head * stride, bytes});
  };
  add(base, rowElements(current.cache, shape.keyWidth), elementBytes);
  if (shape.valueOffset < 0)
    add(base + valueBase, rowElements(current.cache, shape.valueWidth), elementBytes);
  if (holdsCodes(current.cache))
    for (const int64_t side : {0, 1})
      add(base + scaleBase + static_cast<size_t>(side * shape.kvHeads * capacity) * sizeof(float),
          1, sizeof(float));
  return result;
}

} // namespace kvopt
