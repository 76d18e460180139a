// Attention of any shape and layout: one pass over K and V, shared by the query heads of a group,
// with the online softmax in f32 over tiles of keys.
#include "runtime/kernels/simd/attention_block.h"
#include "runtime/kernels/simd/attention_kernel.h"

#include <cstring>

// Highway compiles this file once per SIMD target: foreach_target.h includes it again and again
// with another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd/attention/tiled.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/kernels/simd/products-inl.h"
#include "runtime/kernels/simd/softmax-inl.h"
#include "runtime/kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::HWY_NAMESPACE {
namespace {

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

template <class Cache> void attendBlock(const AttentionBlock& block) {
  packQueries(block);
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
