// Attention of any shape and layout: one pass over K and V, shared by the query heads of a group,
// with online softmax in f32 over tiles of keys.
#include "runtime/simd/attention/attention_block.h"
#include "runtime/simd/attention/attention_kernel.h"

#include <cstring>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/attention/kernels/tiled.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/simd/attention/products-inl.h"
#include "runtime/simd/attention/softmax-inl.h"
#include "runtime/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {
namespace {

/// Q K^T of the block and `keys`, which are in the tile that starts at `tile`.
template <class Cache>
void scoreTile(const AttentionBlock& block, const KeyValueRows& cache, int64_t tile,
               KeyRange keys) {
  const AttentionView& view = block.view;
  const auto* base = reinterpret_cast<const typename Cache::Element*>(cache.key);
  const int64_t rowStride = cache.keyStride / static_cast<int64_t>(sizeof(*base));
  const size_t width = static_cast<size_t>(view.keyWidth);
  const size_t stride = static_cast<size_t>(rowStride);
  const size_t packedWidth = static_cast<size_t>(block.packedKeyWidth);
  const size_t queries = static_cast<size_t>(block.queries);
  float* scores = block.scores + (keys.begin - tile);
  if (view.keyTransposed) {
    const size_t readable = static_cast<size_t>(keys.begin - cache.begin);
    const size_t count = static_cast<size_t>(keys.end - keys.begin);
    // A last partial vector extends past its row's tile only into columns before keys.begin.
    multiply<Cache>({block.query, packedWidth, queries, width, base + keys.begin, stride, count,
                     readable, nullptr, scores, kAttentionTileKeys});
    const size_t lanes = hn::Lanes(F32Tag());
    if (const size_t tail = count % lanes; tail != 0)
      for (size_t query = 0; query < queries; ++query) {
        float* rest = scores + query * kAttentionTileKeys + (count - tail);
        std::memmove(rest, rest + (lanes - tail), tail * sizeof(float));
      }
    return;
  }
  for (int64_t key = keys.begin; key < keys.end; key += 4) {
    const auto* row = base + key * rowStride;
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

template <class Cache>
void accumulateTile(const AttentionBlock& block, const KeyValueRows& cache, int64_t tile,
                    KeyRange keys) {
  const auto* base = reinterpret_cast<const typename Cache::Element*>(cache.value);
  const int64_t stride = cache.valueStride / static_cast<int64_t>(sizeof(*base));
  multiply<Cache>({block.scores + (keys.begin - tile), kAttentionTileKeys,
                   static_cast<size_t>(block.queries), static_cast<size_t>(keys.end - keys.begin),
                   base + keys.begin * stride, static_cast<size_t>(stride),
                   static_cast<size_t>(block.view.valueWidth), 0, block.correction,
                   block.accumulator, static_cast<size_t>(block.packedValueWidth)});
}

template <class Cache>
void attendRows(const AttentionBlock& block, const KeyValueRows& rows, KeyRange range) {
  int64_t tile = range.begin - range.begin % kAttentionTileKeys;
  for (; tile < range.end; tile += kAttentionTileKeys) {
    const KeyRange keys{HWY_MAX(tile, range.begin), HWY_MIN(tile + kAttentionTileKeys, range.end)};
    scoreTile<Cache>(block, rows, tile, keys);
    softmaxTile(block, tile);
    accumulateTile<Cache>(block, rows, tile, keys);
  }
}

template <class Cache> void attendBlock(const AttentionBlock& block) {
  packQueries(block, [&](int64_t query) {
    return PackedPlace{block.query + query * block.packedKeyWidth, 0};
  });
  startRows(block);
  KeyRange visible = block.visibleKeys();
  while (block.view.isGathered() && visible.begin < visible.end) {
    const auto [rows, end] = block.nextRows(visible);
    attendRows<Cache>(block, rows, {visible.begin, end});
    visible.begin = end;
  }
  if (!block.view.isGathered())
    attendRows<Cache>(block, block.allRows(), visible);
  storeOutput(block);
}

} // namespace

void attendBlock(const AttentionBlock& block) {
  if (block.view.isQuantized())
    return attendBlock<I8Storage>(block);
  switch (block.view.cacheStorage) {
  case FloatStorage::f32:
    return attendBlock<F32Storage>(block);
  case FloatStorage::f16:
    return attendBlock<F16Storage>(block);
  case FloatStorage::bf16:
    return attendBlock<Bf16Storage>(block);
  }
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(attendBlock);

namespace {

bool takes(const AttentionView&) { return true; }

void run(const AttentionView& view, int64_t unit, int64_t, std::span<std::byte> scratch,
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

} // namespace kvopt::simd
#endif // HWY_ONCE
