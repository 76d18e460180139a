// Attention of few queries over keys in rows: K and V are read once, in tiles, by all queries of a
// key/value head together, while the next tile is on its way from memory. A long past is divided
// into segments that run at the same time and are merged by the last to finish, always in the same
// order.
#include "runtime/kernels/simd/attention_block.h"
#include "runtime/kernels/simd/attention_kernel.h"
#include "runtime/kernels/simd/decode_segments.h"
#include "runtime/kernels/simd/read_ahead.h"

#include <algorithm>

// Highway compiles this file once per SIMD target: foreach_target.h includes it again and again
// with another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd/attention/decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/kernels/simd/decode_rows-inl.h"
#include "runtime/kernels/simd/decode_scores-inl.h"
#include "runtime/kernels/simd/softmax-inl.h"
#include "runtime/kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::HWY_NAMESPACE {
namespace {

/// How far ahead of its use memory is asked for: with less a core that computes has too few reads
/// under way; with more it is slower again.
constexpr int64_t kAheadBytes = 16384;
/// How far ahead one query does, which goes straight on.
constexpr int64_t kStraightAheadBytes = 8192;

/// Adds weights times V for `Queries` queries and `Vectors` vectors of columns from `column` on;
/// with Tail, the last `tail` columns, right-aligned. `isFirst` are a tile's first keys, which
/// correct the sums of those before.
template <class Cache, int Queries, int Vectors, bool Tail = false>
HWY_NOINLINE void accumulateBlock(const AttentionBlock& block, const Rows<Cache>& values,
                                  int64_t tile, KeyRange range, bool isFirst, int64_t query,
                                  ReadAhead& ahead, size_t column, size_t tail = 0) {
  const F32Tag f32;
  const Cache cache;
  const size_t lanes = hn::Lanes(f32);
  const size_t packed = static_cast<size_t>(block.packedValueWidth);
  float* HWY_RESTRICT out = block.accumulator + static_cast<size_t>(query) * packed + column;
  const float* HWY_RESTRICT weights = block.scores + query * kAttentionTileKeys - tile;
  Registers<Queries * Vectors> sums;
  unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
    constexpr int kQuery = decltype(q)::value;
    const auto factor = hn::Set(f32, isFirst ? block.correction[query + kQuery] : 1.0f);
    unroll<Vectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kVector = decltype(v)::value;
      get<kQuery * Vectors + kVector>(sums) =
          hn::Mul(hn::LoadU(f32, out + kQuery * packed + kVector * lanes), factor);
    });
  });
  const auto* row = values.row(range.begin) + column;
  const int64_t lines = linesOf(Vectors * lanes * sizeof(*row), queryPasses(block));
  ReadAhead::Cursor cursor(ahead);
  for (int64_t key = range.begin; key < range.end; ++key, row += values.stride) {
    // One query's whole blocks of a row go straight on; several queries come back to the row.
    constexpr bool kStraight = Queries == 1 && Vectors > 1;
    if constexpr (!kStraight)
      cursor.ask(lines);
    Registers<Vectors> v;
    if constexpr (Tail)
      get<0>(v) = loadLast<Cache>(row + tail, tail, column + tail);
    else
      unroll<Vectors>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
        constexpr int kVector = decltype(i)::value;
        if constexpr (kStraight)
          askStraight<Cache, Vectors, kVector>(cursor);
        get<kVector>(v) = load(cache, row + kVector * lanes);
      });
    unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kQuery = decltype(q)::value;
      const auto weight = hn::Set(f32, weights[kQuery * kAttentionTileKeys + key]);
      unroll<Vectors>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
        auto& sum = get<kQuery * Vectors + decltype(i)::value>(sums);
        sum = hn::MulAdd(weight, get<decltype(i)::value>(v), sum);
      });
    });
  }
  unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
    constexpr int kQuery = decltype(q)::value;
    unroll<Vectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kVector = decltype(v)::value;
      hn::StoreU(get<kQuery * Vectors + kVector>(sums), f32,
                 out + kQuery * packed + kVector * lanes);
    });
  });
}

/// Vectors of columns of one block of sums with `Queries` queries.
template <int Queries>
inline constexpr int kVectors = Queries == 1 || (Queries == 2 && kManyRegisters) ? 8
                                : Queries == 2 || kManyRegisters                 ? 4
                                                                                 : 2;

/// All columns for `Queries` queries.
template <class Cache, int Queries>
void accumulateQueries(const AttentionBlock& block, const Rows<Cache>& values, int64_t tile,
                       KeyRange range, bool isFirst, int64_t query, ReadAhead& ahead) {
  constexpr int kCount = kVectors<Queries>;
  const size_t lanes = hn::Lanes(F32Tag());
  size_t column = 0;
  for (; column + kCount * lanes <= values.width; column += kCount * lanes)
    accumulateBlock<Cache, Queries, kCount>(block, values, tile, range, isFirst, query, ahead,
                                            column);
  if constexpr (kCount == 8)
    if (column + 4 * lanes <= values.width) {
      accumulateBlock<Cache, Queries, 4>(block, values, tile, range, isFirst, query, ahead, column);
      column += 4 * lanes;
    }
  for (; column + lanes <= values.width; column += lanes)
    accumulateBlock<Cache, Queries, 1>(block, values, tile, range, isFirst, query, ahead, column);
  if (column < values.width)
    accumulateBlock<Cache, Queries, 1, true>(block, values, tile, range, isFirst, query, ahead,
                                             column, values.width - column);
}

template <class Cache>
void accumulateTile(const AttentionBlock& block, const Rows<Cache>& values, int64_t tile,
                    KeyRange range, ReadAhead& ahead) {
  const size_t together = hn::Lanes(F32Tag()) * (block.queries == 1   ? kVectors<1>
                                                 : block.queries == 2 ? kVectors<2>
                                                                      : kVectors<4>);
  const int64_t passes =
      queryPasses(block) * static_cast<int64_t>((values.width + together - 1) / together);
  forEachTurn(values, range, passes, [&](KeyRange turn) HWY_ATTR {
    ahead.grantValues(turn.end - turn.begin);
    forEachQueryBlock(block.queries, [&](auto queries, int64_t query) HWY_ATTR {
      accumulateQueries<Cache, decltype(queries)::value>(block, values, tile, turn,
                                                         turn.begin == range.begin, query, ahead);
    });
  });
}

/// `rest` are the keys that come after `range`.
template <class Cache>
void attendRows(const AttentionBlock& block, const KeyValueRows& rows, KeyRange range,
                KeyRange rest) {
  const Rows<Cache> keys(rows.key, rows.keyStride, block.view.keyWidth);
  const Rows<Cache> values(rows.value, rows.valueStride, block.view.valueWidth);
  const int64_t aheadBytes = block.queries == 1 ? kStraightAheadBytes : kAheadBytes;
  ReadAhead ahead(keys.plane(), values.plane(), range, aheadBytes);
  if (rest.begin < rest.end) {
    const auto [next, part] = block.segmentRows(rest);
    ahead.follow(Rows<Cache>(next.key, next.keyStride, block.view.keyWidth).plane(),
                 Rows<Cache>(next.value, next.valueStride, block.view.valueWidth).plane(), part);
  }
  ReadAhead::Cursor(ahead).ask(aheadBytes / ReadAhead::line);
  int64_t tile = range.begin - range.begin % kAttentionTileKeys;
  for (; tile < range.end; tile += kAttentionTileKeys) {
    const KeyRange part{HWY_MAX(tile, range.begin), HWY_MIN(tile + kAttentionTileKeys, range.end)};
    scoreTile(block, keys, tile, part, ahead);
    softmaxTile(block, tile);
    accumulateTile(block, values, tile, part, ahead);
  }
}

template <class Cache> void attendKeys(const AttentionBlock& block, KeyRange range) {
  if (block.view.segments.empty())
    return attendRows<Cache>(block, block.allRows(), range, {});
  while (range.begin < range.end) {
    const auto [rows, end] = block.nextRows(range);
    attendRows<Cache>(block, rows, {range.begin, end}, {end, range.end});
    range.begin = end;
  }
}

} // namespace

/// Packs the queries and attends to `range`, a part of the keys that the block sees. Only where
/// `withSink`, a sink counts.
void attendRange(const AttentionBlock& block, KeyRange range, bool withSink) {
  packQueries(block);
  startRows(block, withSink);
  if (block.view.isQuantized())
    return attendKeys<I8Storage>(block, range);
  switch (block.view.cacheStorage) {
  case FloatStorage::f32:
    return attendKeys<F32Storage>(block, range);
  case FloatStorage::f16:
    return attendKeys<F16Storage>(block, range);
  case FloatStorage::bf16:
    return attendKeys<Bf16Storage>(block, range);
  }
}

void storeBlock(const AttentionBlock& block) { storeOutput(block); }

} // namespace kvopt::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt {

HWY_EXPORT(attendRange);
HWY_EXPORT(storeBlock);

namespace {

/// Fewer query rows than this are for this kernel, however many heads share a key/value head: which
/// kernel computes a step, and so its bits, must not depend on whether a model repeats its heads.
constexpr int64_t kFewRows = 8;
/// With more rows, fewer queries than this.
constexpr int64_t kFewQueries = 32;

bool takes(const AttentionView& view) {
  return !view.keyTransposed && view.kvHeads > 0 &&
         (view.queryRows < kFewRows ||
          view.queryRows * (view.queryHeads / view.kvHeads) < kFewQueries);
}

int64_t units(const AttentionView& view) {
  const int64_t blocks = attentionBlocks(view);
  return blocks * decodeSegments(view, blocks);
}

size_t sharedBytes(const AttentionView& view) {
  return DecodePartials::bytes(view, attentionBlocks(view));
}

void run(const AttentionView& view, int64_t unit, std::span<std::byte> scratch,
         std::span<std::byte> shared) {
  const int64_t blocks = attentionBlocks(view);
  const int64_t segments = decodeSegments(view, blocks);
  const int64_t index = unit / segments, segment = unit % segments;
  const AttentionBlock block(view, index, scratch);
  const KeyRange range = decodeSegment(block.visibleKeys(), segment, segments);
  HWY_DYNAMIC_DISPATCH(attendRange)(block, range, segment == 0);
  if (segments > 1) {
    DecodePartials partials(view, blocks, shared);
    partials.put(block, unit);
    if (!partials.isLast(index, segments))
      return;
    partials.merge(block, index * segments, segments);
  }
  HWY_DYNAMIC_DISPATCH(storeBlock)(block);
}

} // namespace

void register_decode(AttentionKernelRegistry& registry) {
  registry.add({.name = "decode",
                .use = "few query rows, keys in rows",
                .rank = 10,
                .takes = takes,
                .units = units,
                .scratchBytes = attentionBlockBytes,
                .sharedBytes = sharedBytes,
                .run = run});
}

} // namespace kvopt
#endif // HWY_ONCE
