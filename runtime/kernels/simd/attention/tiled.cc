// Attention of any shape and layout: one pass over K and V, shared by the query heads of a group,
// with the online softmax in f32 over tiles of keys.
#include "runtime/kernels/simd/attention_block.h"
#include "runtime/kernels/simd/attention_kernel.h"

#include <algorithm>
#include <cstring>
#include <limits>

// Highway compiles this file once per SIMD target: foreach_target.h includes it again and again
// with another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd/attention/tiled.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/kernels/simd/products-inl.h"
#include "runtime/kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::HWY_NAMESPACE {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <class Element>
const Element* headBase(const void* base, const RowStrides& strides, int64_t batch, int64_t head) {
  return static_cast<const Element*>(base) + batch * strides.batch + head * strides.head;
}

template <class Storage> void packQueries(const AttentionBlock& block) {
  const AttentionView& view = block.view;
  const size_t width = static_cast<size_t>(view.keyWidth);
  for (int64_t query = 0; query < block.queries; ++query) {
    const int64_t head = block.kvHead * block.group + query % block.group;
    const auto* row =
        headBase<typename Storage::Element>(view.query, view.queryStrides, block.batch, head) +
        (block.firstRow + query / block.group) * view.queryStrides.row;
    float* packed = block.query + query * block.packedKeyWidth;
    if (view.keyTransposed)
      for (size_t d = 0; d < width; ++d)
        packed[d] = toFloat(Storage(), row[d]);
    else
      packRow<Storage>(row, width, packed);
  }
}

/// A sink is a first logit that has been seen and that had no value.
void startRows(const AttentionBlock& block) {
  for (int64_t query = 0; query < block.queries; ++query) {
    const int64_t head = block.kvHead * block.group + query % block.group;
    const float sink = block.view.sinks ? block.view.sinks[head] : kMinusInfinity;
    block.maximum[query] = HWY_MAX(sink, -kLargest);
    block.sum[query] = sink == kMinusInfinity ? 0.0f : 1.0f;
  }
  std::fill_n(block.accumulator, block.queries * block.packedValueWidth, 0.0f);
}

/// Q K^T of the block and `keys`, which lie in the tile that starts at `tile`.
template <class Cache> void scoreTile(const AttentionBlock& block, int64_t tile, KeyRange keys) {
  const AttentionView& view = block.view;
  const auto* base =
      headBase<typename Cache::Element>(view.key, view.keyStrides, block.batch, block.kvHead);
  const size_t width = static_cast<size_t>(view.keyWidth);
  const size_t stride = static_cast<size_t>(view.keyStrides.row);
  const size_t packedWidth = static_cast<size_t>(block.packedKeyWidth);
  const size_t queries = static_cast<size_t>(block.queries);
  float* scores = block.scores + (keys.begin - tile);
  if (view.keyTransposed) {
    const size_t begin = static_cast<size_t>(keys.begin);
    const size_t count = static_cast<size_t>(keys.end - keys.begin);
    // A last partial vector reaches past its row's tile only into columns before keys.begin.
    multiply<Cache>({block.query, packedWidth, queries, width, base + begin, stride, count, begin,
                     nullptr, scores, kAttentionTileKeys});
    const size_t lanes = hn::Lanes(F32Tag());
    if (const size_t tail = count % lanes; tail != 0)
      for (size_t query = 0; query < queries; ++query) {
        float* rest = scores + query * kAttentionTileKeys + (count - tail);
        std::memmove(rest, rest + (lanes - tail), tail * sizeof(float));
      }
    return;
  }
  for (int64_t key = keys.begin; key < keys.end; key += 4) {
    const auto* row = base + key * view.keyStrides.row;
    const size_t count = static_cast<size_t>(HWY_MIN(keys.end - key, 4));
    float* out = scores + (key - keys.begin);
    size_t query = 0;
    for (; query + 2 <= queries; query += 2)
      scoreKeys<Cache, 2>(row, stride, count, width, block.query + query * packedWidth, packedWidth,
                          out + query * kAttentionTileKeys, kAttentionTileKeys);
    if (query < queries)
      scoreKeys<Cache, 1>(row, stride, count, width, block.query + query * packedWidth, packedWidth,
                          out + query * kAttentionTileKeys, kAttentionTileKeys);
  }
}

/// Turns one query's dot products of a tile into weights exp(s - maximum), and moves its maximum,
/// sum and correction on. `bias` is null when all keys are visible and unmasked.
void softmaxTile(const AttentionBlock& block, int64_t query, const float* bias) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  const AttentionView& view = block.view;
  const auto scale = hn::Set(f32, view.scale);
  const auto softcap = hn::Set(f32, view.softcap);
  const auto lowest = hn::Set(f32, -kLargest);
  const auto highest = hn::Set(f32, kLargest);
  const auto hidden = hn::Set(f32, kMinusInfinity);
  float* scores = block.scores + query * kAttentionTileKeys;

  auto largest = lowest;
  for (size_t j = 0; j < kAttentionTileKeys; j += lanes) {
    auto s = hn::Mul(hn::LoadU(f32, scores + j), scale);
    if (view.softcap != 0)
      s = hn::Mul(softcap, tanh(hn::Div(s, softcap)));
    const auto term = bias ? hn::LoadU(f32, bias + j) : hn::Zero(f32);
    // NaN passes through: x86 returns the second operand.
    s = hn::Min(highest, hn::Max(lowest, hn::Add(s, term)));
    s = hn::IfThenElse(hn::Eq(term, hidden), hidden, s);
    hn::StoreU(s, f32, scores + j);
    largest = hn::Max(largest, s);
  }
  const float before = block.maximum[query];
  const float maximum = HWY_MAX(before, hn::GetLane(hn::MaxOfLanes(f32, largest)));
  const auto shift = hn::Set(f32, maximum);
  auto sum = hn::Zero(f32);
  for (size_t j = 0; j < kAttentionTileKeys; j += lanes) {
    const auto weight = exp(hn::Sub(hn::LoadU(f32, scores + j), shift));
    hn::StoreU(weight, f32, scores + j);
    sum = hn::Add(sum, weight);
  }
  const float correction = hn::GetLane(exp(hn::Set(f32, before - maximum)));
  block.maximum[query] = maximum;
  block.correction[query] = correction;
  block.sum[query] = block.sum[query] * correction + hn::GetLane(hn::SumOfLanes(f32, sum));
}

void softmaxTile(const AttentionBlock& block, int64_t tile) {
  const bool perHead = block.view.maskKind != MaskKind::none && block.view.maskStrides.head != 0;
  bool biased = false;
  for (int64_t query = 0; query < block.queries; ++query) {
    const int64_t headInGroup = query % block.group;
    if (headInGroup == 0 || perHead)
      biased = block.fillBias(block.firstRow + query / block.group,
                              block.kvHead * block.group + headInGroup, tile);
    softmaxTile(block, query, biased ? block.bias : nullptr);
  }
}

template <class Cache>
void accumulateTile(const AttentionBlock& block, int64_t tile, KeyRange keys) {
  const AttentionView& view = block.view;
  const auto* base =
      headBase<typename Cache::Element>(view.value, view.valueStrides, block.batch, block.kvHead);
  multiply<Cache>(
      {block.scores + (keys.begin - tile), kAttentionTileKeys, static_cast<size_t>(block.queries),
       static_cast<size_t>(keys.end - keys.begin), base + keys.begin * view.valueStrides.row,
       static_cast<size_t>(view.valueStrides.row), static_cast<size_t>(view.valueWidth), 0,
       block.correction, block.accumulator, static_cast<size_t>(block.packedValueWidth)});
}

void storeElement(void* base, int64_t index, FloatStorage storage, float value) {
  if (storage == FloatStorage::f32)
    static_cast<float*>(base)[index] = value;
  else
    static_cast<uint16_t*>(base)[index] =
        storage == FloatStorage::f16 ? floatToF16(value) : floatToBf16(value);
}

void storeOutput(const AttentionBlock& block) {
  const AttentionView& view = block.view;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32Tag()));
  const int64_t tail = view.valueWidth % lanes;
  const int64_t whole = view.valueWidth - tail;
  const RowStrides& strides = view.outputStrides;
  for (int64_t query = 0; query < block.queries; ++query) {
    const int64_t head = block.kvHead * block.group + query % block.group;
    const int64_t row = block.firstRow + query / block.group;
    const int64_t index = block.batch * strides.batch + head * strides.head + row * strides.row;
    const float* packed = block.accumulator + query * block.packedValueWidth;
    const float sum = block.sum[query] == 0.0f ? 1.0f : block.sum[query];
    for (int64_t d = 0; d < view.valueWidth; ++d) {
      const float value = packed[d < whole ? d : d + lanes - tail];
      storeElement(view.output, index + d, view.outputStorage, value / sum);
    }
  }
}

template <class Cache> void attendBlock(const AttentionBlock& block) {
  switch (block.view.queryStorage) {
  case FloatStorage::f32:
    packQueries<F32Storage>(block);
    break;
  case FloatStorage::f16:
    packQueries<F16Storage>(block);
    break;
  case FloatStorage::bf16:
    packQueries<Bf16Storage>(block);
    break;
  }
  startRows(block);
  const KeyRange visible = block.visibleKeys();
  int64_t tile = visible.begin - visible.begin % kAttentionTileKeys;
  for (; tile < visible.end; tile += kAttentionTileKeys) {
    const KeyRange keys{HWY_MAX(tile, visible.begin),
                        HWY_MIN(tile + kAttentionTileKeys, visible.end)};
    scoreTile<Cache>(block, tile, keys);
    softmaxTile(block, tile);
    accumulateTile<Cache>(block, tile, keys);
  }
  storeOutput(block);
}

} // namespace

void attendBlock(const AttentionBlock& block) {
  switch (block.view.cacheStorage) {
  case FloatStorage::f32:
    return attendBlock<F32Storage>(block);
  case FloatStorage::f16:
    return attendBlock<F16Storage>(block);
  case FloatStorage::bf16:
    return attendBlock<Bf16Storage>(block);
  }
}

} // namespace kvopt::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt {

HWY_EXPORT(attendBlock);

namespace {

bool takes(const AttentionView&) { return true; }

void run(const AttentionView& view, int64_t unit, std::span<std::byte> scratch,
         std::span<std::byte>) {
  const AttentionBlock block(view, unit, scratch);
  HWY_DYNAMIC_DISPATCH(attendBlock)(block);
}

} // namespace

void register_tiled(AttentionKernelRegistry& registry) {
  registry.add({.name = "tiled",
                .use = "any shape, layout, storage and mask",
                .rank = 0,
                .takes = takes,
                .units = attentionBlocks,
                .scratchBytes = attentionBlockBytes,
                .run = run});
}

} // namespace kvopt
#endif // HWY_ONCE
