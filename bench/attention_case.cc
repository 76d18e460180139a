// Memory of the cases of attention_bench, and views into it.
#include "bench/attention_case.h"

#include "ir/half.h"

#include <cstring>
#include <random>

namespace kvopt {
namespace {

/// More than any last-level cache, for every case's layers together.
constexpr size_t coldBytes = size_t{320} << 20;
/// The largest layer.
constexpr size_t mostBytes = size_t{768} << 20;

size_t widthOf(FloatStorage storage) { return storage == FloatStorage::f32 ? 4 : 2; }

} // namespace

const char* name(FloatStorage storage) {
  switch (storage) {
  case FloatStorage::f32:
    return "f32";
  case FloatStorage::f16:
    return "f16";
  case FloatStorage::bf16:
    return "bf16";
  }
  return "";
}

size_t AttentionCase::cacheBytes() const {
  const int64_t width = shape.keyWidth + (shape.valueOffset < 0 ? shape.valueWidth : 0);
  return static_cast<size_t>(shape.kvHeads * totalLength * width) * widthOf(storage);
}

double AttentionCase::operations() const {
  // Row i of S sees T - S + i + 1 keys.
  const double pairs = static_cast<double>(newRows) *
                       (static_cast<double>(totalLength) - (static_cast<double>(newRows) - 1) / 2);
  return 2 * pairs * static_cast<double>(shape.queryHeads) *
         static_cast<double>(shape.keyWidth + shape.valueWidth);
}

AttentionMemory::AttentionMemory()
    : caches(llvm::cantFail(Buffer::create(std::make_shared<Allocator>(), mostBytes))) {}

void AttentionMemory::set(const AttentionCase& attentionCase) {
  const bool isFilled = layerBytes != 0 && current.storage == attentionCase.storage;
  current = attentionCase;
  elementBytes = widthOf(current.storage);
  if (!isFilled) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<std::byte> pattern(size_t{1} << 18);
    for (size_t at = 0; at < pattern.size(); at += elementBytes) {
      const float value = normal(random);
      const uint16_t bits =
          current.storage == FloatStorage::f16 ? floatToF16(value) : floatToBf16(value);
      if (current.storage == FloatStorage::f32)
        std::memcpy(&pattern[at], &value, sizeof value);
      else
        std::memcpy(&pattern[at], &bits, sizeof bits);
    }
    for (size_t at = 0; at < caches->size(); at += pattern.size())
      std::memcpy(caches->data() + at, pattern.data(), pattern.size());
  }
  const AttentionShape& shape = current.shape;
  // Room for more rows, and planes that are no multiple of a page apart.
  capacity = current.totalLength + current.totalLength / 8 + 3;
  const auto plane = [&](int64_t width) {
    return static_cast<size_t>(shape.kvHeads * capacity * width) * elementBytes;
  };
  valueBase = shape.valueOffset < 0 ? plane(shape.keyWidth)
                                    : static_cast<size_t>(shape.valueOffset) * elementBytes;
  layerBytes = plane(shape.keyWidth) + (shape.valueOffset < 0 ? plane(shape.valueWidth) : 0);
  layerBytes = (layerBytes + 63) / 64 * 64;
  layers = current.isCold ? std::max<size_t>(2, coldBytes / layerBytes) : 1;
  layers = std::min(layers, caches->size() / layerBytes);
  layer = 0;
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
  view.cacheStorage = current.storage;
  view.query = query.data();
  view.key = caches->data() + layer * layerBytes;
  view.value = caches->data() + layer * layerBytes + valueBase;
  view.output = output.data();
  view.queryStrides = strides(shape.queryHeads, current.newRows, shape.keyWidth);
  view.keyStrides = strides(shape.kvHeads, capacity, shape.keyWidth);
  view.valueStrides =
      strides(shape.kvHeads, capacity, ownValues ? shape.valueWidth : shape.keyWidth);
  view.outputStrides = strides(shape.queryHeads, current.newRows, shape.valueWidth);
  view.scale = 0.08f;
  view.causal = true;
  return view;
}

std::vector<AttentionMemory::Plane> AttentionMemory::planes() const {
  const AttentionShape& shape = current.shape;
  const std::byte* base = caches->data() + layer * layerBytes;
  std::vector<Plane> result;
  const auto add = [&](const std::byte* from, int64_t width) {
    const size_t stride = static_cast<size_t>(capacity * width) * elementBytes;
    const size_t bytes = static_cast<size_t>(current.totalLength * width) * elementBytes;
    for (size_t head = 0; head < static_cast<size_t>(shape.kvHeads); ++head)
      result.push_back({from + head * stride, bytes});
  };
  add(base, shape.keyWidth);
  if (shape.valueOffset < 0)
    add(base + valueBase, shape.valueWidth);
  return result;
}

} // namespace kvopt
