// Division of attention into blocks, their scratch, and the reading of masks.
#include "runtime/kernels/simd/attention_block.h"

#include "ir/half.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

namespace kvopt {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Queries of a block, unless one row's group alone has more: enough to amortise the reading of a
/// tile, few enough that packed queries, accumulators and scores stay in a second-level cache.
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

bool isEmpty(const AttentionView& view) {
  return view.batches == 0 || view.queryHeads == 0 || view.queryRows == 0 || view.valueWidth == 0;
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

size_t attentionBlockBytes(const AttentionView& view) {
  if (isEmpty(view))
    return 0;
  const int64_t perQuery = roundUp(view.keyWidth, kAttentionMaxLanes) +
                           roundUp(view.valueWidth, kAttentionMaxLanes) + kAttentionTileKeys + 3;
  const int64_t perTile = view.isQuantized() ? 3 : 1;
  const int64_t floats = rowsPerBlock(view) * groupSize(view) * perQuery +
                         perTile * kAttentionTileKeys + kAttentionMaxLanes;
  return static_cast<size_t>(floats) * sizeof(float) + kScratchAlignment;
}

AttentionBlock::AttentionBlock(const AttentionView& attention, int64_t unit,
                               std::span<std::byte> scratch)
    : view(attention), group(groupSize(attention)),
      packedKeyWidth(roundUp(attention.keyWidth, kAttentionMaxLanes)),
      packedValueWidth(roundUp(attention.valueWidth, kAttentionMaxLanes)) {
  assert(unit >= 0 && unit < attentionBlocks(view));
  assert(scratch.size() >= attentionBlockBytes(view));
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
  accumulator = take(queries * packedValueWidth);
  scores = take(queries * kAttentionTileKeys + kAttentionMaxLanes);
  maximum = take(queries);
  sum = take(queries);
  correction = take(queries);
}

KeyRange AttentionBlock::visibleKeys(int64_t row) const {
  return kvopt::visibleKeys(view, total, row);
}

KeyRange AttentionBlock::visibleKeys() const {
  return {visibleKeys(firstRow).begin, visibleKeys(firstRow + rows - 1).end};
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

} // namespace kvopt
