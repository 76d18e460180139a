// Division of attention into blocks, their scratch memory, and reading of masks.
#include "runtime/simd/attention/attention_block.h"

#include "runtime/simd/attention/code_products.h"
#include "support/half.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

namespace kvopt::simd {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Number of queries of a block, unless a single row's group has more: enough to amortize reading a
/// tile, and few enough for packed queries, accumulators and scores to fit into a second-level
/// cache.
constexpr int64_t kBlockQueries = 64;

constexpr int64_t kScratchAlignment = 64;

int64_t roundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t groupSize(const AttentionView& view) { return view.queryHeads / view.kvHeads; }

int64_t rowsPerBlock(const AttentionView& view) {
  return std::min(view.queryRows, std::max<int64_t>(1, kBlockQueries / groupSize(view)));
}

int64_t blocksPerHead(const AttentionView& view) {
  const int64_t rows = rowsPerBlock(view);
  return (view.queryRows + rows - 1) / rows;
}

/// Number of words for a query in digits; 0 if none are needed.
int64_t digitWords(const AttentionView& view) {
  const bool isOfUse = view.isQuantized() && !view.keyTransposed && view.byteProducts &&
                       hasByteProducts() && view.keyWidth <= mostCodeColumns;
  return isOfUse ? QueryDigits::words(view.keyWidth) : 0;
}

bool isEmpty(const AttentionView& view) {
  return view.batches == 0 || view.queryHeads == 0 || view.queryRows == 0 || view.valueWidth == 0;
}

int64_t cacheElementBytes(const AttentionView& view) {
  return view.isQuantized() ? 1 : view.cacheStorage == FloatStorage::f32 ? 4 : 2;
}

float readFloat(const void* base, int64_t index, FloatStorage storage) {
  if (storage == FloatStorage::f32)
    return static_cast<const float*>(base)[index];
  const uint16_t bits = static_cast<const uint16_t*>(base)[index];
  return storage == FloatStorage::f16 ? f16ToFloat(bits) : bf16ToFloat(bits);
}

} // namespace

KeyRange visibleKeys(const AttentionView& view, int64_t total, int64_t row) {
  const int64_t position = row + total - view.queryRows;
  KeyRange range{0, total};
  if (view.causal)
    range.end = std::clamp<int64_t>(position + 1, 0, total);
  if (view.window > 0 && position >= view.window)
    range.begin = std::min(position - view.window + 1, range.end);
  return range;
}

size_t segmentOf(const AttentionView& view, int64_t key) {
  const auto after = std::upper_bound(
      view.segments.begin(), view.segments.end(), key,
      [](int64_t at, const KeyValueSegment& segment) { return at < segment.begin; });
  assert(after != view.segments.begin());
  return static_cast<size_t>(after - view.segments.begin()) - 1;
}

int64_t segmentEnd(const AttentionView& view, size_t index, int64_t total) {
  return index + 1 < view.segments.size() ? view.segments[index + 1].begin : total;
}

void readMask(const AttentionView& view, int64_t batch, int64_t head, int64_t row, KeyRange keys,
              float* out) {
  const MaskStrides& strides = view.maskStrides;
  const int64_t index =
      batch * strides.batch + head * strides.head + row * strides.row + keys.begin * strides.column;
  const int64_t count = keys.end - keys.begin, stride = strides.column;
  if (view.maskKind == MaskKind::boolean) {
    const uint8_t* mask = static_cast<const uint8_t*>(view.mask) + index;
    for (int64_t j = 0; j < count; ++j)
      out[j] = mask[j * stride] ? 0.0f : kMinusInfinity;
    return;
  }
  if (view.maskStorage == FloatStorage::f32 && stride == 1) {
    std::copy_n(static_cast<const float*>(view.mask) + index, count, out);
    return;
  }
  for (int64_t j = 0; j < count; ++j)
    out[j] = readFloat(view.mask, index + j * stride, view.maskStorage);
}

void readScales(const float* scales, const RowStrides& strides, int64_t batch, int64_t kvHead,
                KeyRange keys, float* out) {
  const float* from = scales + batch * strides.batch + kvHead * strides.head;
  if (strides.row == 1) {
    std::copy(from + keys.begin, from + keys.end, out);
    return;
  }
  for (int64_t key = keys.begin; key < keys.end; ++key)
    *out++ = from[key * strides.row];
}

int64_t attentionBlocks(const AttentionView& view) {
  assert(view.kvHeads > 0 && view.queryHeads % view.kvHeads == 0);
  assert(view.keyWidth > 0);
  return isEmpty(view) ? 0 : view.batches * view.kvHeads * blocksPerHead(view);
}

int64_t attentionBlockQueries(const AttentionView& view) {
  return isEmpty(view) ? 0 : rowsPerBlock(view) * groupSize(view);
}

size_t attentionBlockBytes(const AttentionView& view, int64_t tiles) {
  if (isEmpty(view))
    return 0;
  const int64_t perQuery = roundUp(view.keyWidth, kAttentionMaxLanes) +
                           roundUp(view.valueWidth, kAttentionMaxLanes) + 2 +
                           tiles * (kAttentionTileKeys + 1) + digitWords(view);
  const int64_t perTile = view.isQuantized() ? 3 : 1;
  int64_t floats = rowsPerBlock(view) * groupSize(view) * perQuery + perTile * kAttentionTileKeys +
                   kAttentionMaxLanes;
  if (view.isGathered())
    floats += kAttentionTileKeys * (view.keyWidth + view.valueWidth);
  return static_cast<size_t>(floats) * sizeof(float) + kScratchAlignment;
}

AttentionBlock::AttentionBlock(const AttentionView& attention, int64_t unit,
                               std::span<std::byte> scratch, int64_t tiles)
    : view(attention), group(groupSize(attention)),
      packedKeyWidth(roundUp(attention.keyWidth, kAttentionMaxLanes)),
      packedValueWidth(roundUp(attention.valueWidth, kAttentionMaxLanes)) {
  assert(unit >= 0 && unit < attentionBlocks(view));
  assert(scratch.size() >= attentionBlockBytes(view, tiles));
  const int64_t blocks = blocksPerHead(view);
  const int64_t headUnit = unit / blocks;
  batch = headUnit / view.kvHeads;
  kvHead = headUnit % view.kvHeads;
  firstRow = unit % blocks * rowsPerBlock(view);
  rows = std::min(rowsPerBlock(view), view.queryRows - firstRow);
  queries = rows * group;
  total = view.totalLengthOf(batch);
  offset = total - view.queryRows;
  assert(total >= 0);

  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  const uintptr_t padding = (kScratchAlignment - address % kScratchAlignment) % kScratchAlignment;
  auto* next = reinterpret_cast<float*>(scratch.data() + padding);
  const auto take = [&next](int64_t floats) {
    float* taken = next;
    next += floats;
    return taken;
  };
  bias = take(kAttentionTileKeys);
  keyScales = view.isQuantized() ? take(kAttentionTileKeys) : nullptr;
  valueScales = view.isQuantized() ? take(kAttentionTileKeys) : nullptr;
  query = take(queries * packedKeyWidth);
  digits = digitWords(view) == 0 ? nullptr
                                 : reinterpret_cast<int32_t*>(take(queries * digitWords(view)));
  accumulator = take(queries * packedValueWidth);
  scores = take(tiles * queries * kAttentionTileKeys + kAttentionMaxLanes);
  maximum = take(queries);
  sum = take(queries);
  correction = take(tiles * queries);
  gathered = view.isGathered() ? reinterpret_cast<std::byte*>(
                                     take(kAttentionTileKeys * (view.keyWidth + view.valueWidth)))
                               : nullptr;
}

AttentionBlock AttentionBlock::withScores(int64_t index) const {
  AttentionBlock block = *this;
  block.scores += index * queries * kAttentionTileKeys;
  block.correction += index * queries;
  return block;
}

KeyRange AttentionBlock::visibleKeys(int64_t row) const {
  return simd::visibleKeys(view, total, row);
}

KeyRange AttentionBlock::visibleKeys() const {
  return {visibleKeys(firstRow).begin, visibleKeys(firstRow + rows - 1).end};
}

KeyValueRows AttentionBlock::allRows() const {
  return rowsAt({0, view.key, view.value, view.keyStrides, view.valueStrides});
}

KeyValueRows AttentionBlock::rowsAt(const KeyValueSegment& segment) const {
  const int64_t width = cacheElementBytes(view);
  const auto base = [&](const void* data, const RowStrides& strides, int64_t step) {
    return static_cast<const std::byte*>(data) +
           width * (batch * strides.batch + kvHead * strides.head - segment.begin * step);
  };
  return {base(segment.key, segment.keyStrides, view.keyTransposed ? 1 : segment.keyStrides.row),
          base(segment.value, segment.valueStrides, segment.valueStrides.row),
          width * segment.keyStrides.row, width * segment.valueStrides.row, segment.begin};
}

KeyValueRows AttentionBlock::gather(KeyRange keys) const {
  const int64_t width = cacheElementBytes(view);
  const int64_t tile = keys.begin - keys.begin % kAttentionTileKeys;
  const int64_t keyBytes = width * view.keyWidth, valueBytes = width * view.valueWidth;
  std::byte* const keysTo = gathered;
  std::byte* const valuesTo = gathered + kAttentionTileKeys * keyBytes;
  const auto copy = [](std::byte* to, const std::byte* from, int64_t bytes) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  };
  for (size_t index = segmentOf(view, keys.begin); keys.begin < keys.end; ++index) {
    const int64_t end = std::min(segmentEnd(view, index, total), keys.end);
    if (end <= keys.begin)
      continue; // empty
    const KeyValueRows from = rowsAt(view.segments[index]);
    for (int64_t key = keys.begin; key < end; ++key) {
      copy(valuesTo + (key - tile) * valueBytes, from.value + key * from.valueStride, valueBytes);
      if (!view.keyTransposed)
        copy(keysTo + (key - tile) * keyBytes, from.key + key * from.keyStride, keyBytes);
    }
    if (view.keyTransposed)
      for (int64_t column = 0; column < view.keyWidth; ++column)
        copy(keysTo + width * (column * kAttentionTileKeys + keys.begin - tile),
             from.key + column * from.keyStride + width * keys.begin, width * (end - keys.begin));
    keys.begin = end;
  }
  const int64_t step = view.keyTransposed ? width : keyBytes;
  return {keysTo - tile * step, valuesTo - tile * valueBytes,
          view.keyTransposed ? width * kAttentionTileKeys : keyBytes, valueBytes, tile};
}

KeyValueRows AttentionBlock::unpack(KeyRange keys) const {
  const int64_t tile = keys.begin - keys.begin % kAttentionTileKeys;
  auto* const keysTo = reinterpret_cast<int8_t*>(gathered);
  int8_t* const valuesTo = keysTo + kAttentionTileKeys * view.keyWidth;
  const KeyValueRows from = allRows();
  unpackCodeRows(view.codeForm,
                 {from.key + keys.begin * from.keyStride, from.keyStride, view.keyWidth},
                 keys.end - keys.begin, keysTo + (keys.begin - tile) * view.keyWidth);
  unpackCodeRows(view.codeForm,
                 {from.value + keys.begin * from.valueStride, from.valueStride, view.valueWidth},
                 keys.end - keys.begin, valuesTo + (keys.begin - tile) * view.valueWidth);
  const auto base = [&](int8_t* products, int64_t width) {
    return reinterpret_cast<const std::byte*>(products) - tile * width;
  };
  return {base(keysTo, view.keyWidth), base(valuesTo, view.valueWidth), view.keyWidth,
          view.valueWidth, tile};
}

std::pair<KeyValueRows, int64_t> AttentionBlock::nextRows(KeyRange range) const {
  const int64_t tile = range.begin - range.begin % kAttentionTileKeys;
  const int64_t tileEnd = std::min(tile + kAttentionTileKeys, range.end);
  if (view.isPacked())
    return {unpack({range.begin, tileEnd}), tileEnd};
  const size_t index = segmentOf(view, range.begin);
  const KeyValueSegment& segment = view.segments[index];
  const int64_t end = std::min(segmentEnd(view, index, total), range.end);
  // A kernel may read all keys of a tile before the requested ones.
  if (segment.begin > tile || end < tileEnd)
    return {gather({range.begin, tileEnd}), tileEnd};
  return {rowsAt(segment), end == range.end ? end : end - end % kAttentionTileKeys};
}

LocatedKeys AttentionBlock::firstKeys(KeyRange keys) const {
  if (view.segments.empty())
    return {allRows(), keys};
  const size_t index = segmentOf(view, keys.begin);
  return {rowsAt(view.segments[index]),
          {keys.begin, std::min(segmentEnd(view, index, total), keys.end)}};
}

void AttentionBlock::fillScales(int64_t tile) const {
  const KeyRange visible = visibleKeys();
  const int64_t begin = std::clamp<int64_t>(visible.begin - tile, 0, kAttentionTileKeys);
  const int64_t end = std::clamp<int64_t>(visible.end - tile, begin, kAttentionTileKeys);
  const auto fill = [&](const float* scales, const RowStrides& strides, float* out) {
    std::fill(out, out + begin, 0.0f);
    std::fill(out + end, out + kAttentionTileKeys, 0.0f);
    readScales(scales, strides, batch, kvHead, {tile + begin, tile + end}, out + begin);
  };
  fill(view.keyScales, view.keyScaleStrides, keyScales);
  fill(view.valueScales, view.valueScaleStrides, valueScales);
}

bool AttentionBlock::fillBias(int64_t row, int64_t head, int64_t tile) const {
  const KeyRange visible = visibleKeys(row);
  const int64_t begin = std::clamp<int64_t>(visible.begin - tile, 0, kAttentionTileKeys);
  const int64_t end = std::clamp<int64_t>(visible.end - tile, begin, kAttentionTileKeys);
  const bool masked = view.maskKind != MaskKind::none;
  if (!masked && begin == 0 && end == kAttentionTileKeys)
    return false;
  std::fill(bias, bias + begin, kMinusInfinity);
  std::fill(bias + end, bias + kAttentionTileKeys, kMinusInfinity);
  if (!masked) {
    std::fill(bias + begin, bias + end, 0.0f);
    return true;
  }
  readMask(view, batch, head, row, {tile + begin, tile + end}, bias + begin);
  return true;
}

} // namespace kvopt::simd
