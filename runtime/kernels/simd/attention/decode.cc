// Attention of few queries over keys in rows: K and V are read once, in tiles, by all queries of a
// key/value head together, while the next tile is on its way from memory. A long past is divided
// into segments that run at the same time and are merged by the last to finish, always in the same
// order.
#include "runtime/kernels/simd/attention_block.h"
#include "runtime/kernels/simd/attention_kernel.h"
#include "runtime/kernels/simd/read_ahead.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>

// Highway compiles this file once per SIMD target: foreach_target.h includes it again and again
// with another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd/attention/decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/kernels/simd/registers-inl.h"
#include "runtime/kernels/simd/softmax-inl.h"
#include "runtime/kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::HWY_NAMESPACE {
namespace {

/// How far ahead of its use memory is asked for: with less a core that computes has too few reads
/// under way; with more it is slower again.
constexpr int64_t kAheadBytes = 16384;
/// Who goes straight through memory asks for a line in so many bytes. The core's own prefetchers
/// bring those between, sooner than alone, and faster than one who asks for every line.
constexpr int64_t kStraightBytes = 256;
/// How far ahead it does.
constexpr int64_t kStraightAheadBytes = 8192;
/// Rows that several passes go over are taken in turns of about so many bytes.
constexpr int64_t kTurnBytes = 16384;

/// Rows of K or V of one head.
template <class Cache> struct Rows {
  using Element = typename Cache::Element;
  /// Row 0 and the distance of rows, in bytes.
  Rows(const std::byte* first, int64_t distance, int64_t columns)
      : base(reinterpret_cast<const Element*>(first)),
        stride(distance / static_cast<int64_t>(sizeof(Element))),
        width(static_cast<size_t>(columns)) {}
  const Element* row(int64_t key) const { return base + key * stride; }
  CachePlane plane() const {
    constexpr int64_t kBytes = sizeof(Element);
    return {reinterpret_cast<const std::byte*>(base), stride * kBytes,
            static_cast<int64_t>(width) * kBytes};
  }

  const Element* base;
  int64_t stride;
  size_t width;
};

/// Keys of one block of scores with `Queries` queries: as many accumulators as registers allow.
template <int Queries>
inline constexpr int kKeys = Queries == 1                     ? 8
                             : Queries == 2 || kManyRegisters ? 4
                                                              : 2;

/// Calls body(Index<n>(), query) for blocks of n = 4, 2 or 1 queries.
template <class Body> HWY_INLINE void forEachQueryBlock(int64_t queries, Body&& body) {
  int64_t query = 0;
  for (; query + 4 <= queries; query += 4)
    body(Index<4>(), query);
  if (query + 2 <= queries) {
    body(Index<2>(), query);
    query += 2;
  }
  if (query < queries)
    body(Index<1>(), query);
}
/// How often it does.
inline int64_t queryPasses(const AttentionBlock& block) { return (block.queries + 3) / 4; }

/// Lines to ask for with `bytes` of rows when all passes over them ask for the same.
inline int64_t linesOf(size_t bytes, int64_t passes) {
  const int64_t each = ReadAhead::line * passes;
  return (static_cast<int64_t>(bytes) + each - 1) / each;
}

/// Calls body(turn) for the parts of `range` that take turns, so that what one pass reads from
/// memory the others find in the first-level cache.
template <class Cache, class Body>
HWY_INLINE void forEachTurn(const Rows<Cache>& rows, KeyRange range, int64_t passes, Body&& body) {
  int64_t keys = kAttentionTileKeys;
  if (passes > 1)
    while (keys > 8 && keys * static_cast<int64_t>(rows.width * sizeof(*rows.base)) > kTurnBytes)
      keys /= 2;
  for (int64_t key = range.begin; key < range.end;) {
    const int64_t end = HWY_MIN(key - key % keys + keys, range.end);
    body(KeyRange{key, end});
    key = end;
  }
}

/// Scores of `Queries` packed queries and kKeys keys from `key` on; keys from `end` on get the
/// score of the last before. Every dot product is one chain of multiply-adds per lane. Asks for
/// `lines` while it computes with two vectors of each key.
template <class Cache, int Queries>
HWY_INLINE void scoreBlock(const Rows<Cache>& keys, int64_t key, int64_t end,
                           const float* HWY_RESTRICT query, size_t queryStride,
                           ReadAhead::Cursor& ahead, int64_t lines, float* HWY_RESTRICT scores) {
  constexpr int kCount = kKeys<Queries>;
  const F32Tag f32;
  const Cache cache;
  const size_t lanes = hn::Lanes(f32);
  const typename Cache::Element* rows[kCount];
  for (int i = 0; i < kCount; ++i)
    rows[i] = keys.row(HWY_MIN(key + i, end - 1));
  Registers<Queries * kCount> sums;
  size_t d = 0;
  const auto add = [&](const Registers<kCount>& k) HWY_ATTR __attribute__((always_inline)) {
    unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kQuery = decltype(q)::value;
      const auto vector = hn::LoadU(f32, query + kQuery * queryStride + d);
      unroll<kCount>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
        auto& sum = get<kQuery * kCount + decltype(i)::value>(sums);
        sum = hn::MulAdd(vector, get<decltype(i)::value>(k), sum);
      });
    });
  };
  const auto step = [&]() HWY_ATTR __attribute__((always_inline)) {
    Registers<kCount> k;
    unroll<kCount>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
      const auto* at = rows[decltype(i)::value] + d;
      get<decltype(i)::value>(k) = load(cache, at);
    });
    add(k);
    d += lanes;
  };
  // Two vectors at a time: in fewer, a loop costs as much as its sums.
  while (d + 2 * lanes <= keys.width) {
    ahead.ask(lines - lines / 2);
    step();
    ahead.ask(lines / 2);
    step();
  }
  if (d + lanes <= keys.width)
    step();
  if (const size_t tail = keys.width - d; tail != 0) {
    Registers<kCount> k;
    unroll<kCount>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
      get<decltype(i)::value>(k) =
          loadLast<Cache>(rows[decltype(i)::value] + keys.width, tail, keys.width);
    });
    add(k);
  }
  float out[Queries * kCount];
  sumLanes(sums, out);
  for (int q = 0; q < Queries; ++q)
    for (int i = 0; i < kCount; ++i)
      scores[q * kAttentionTileKeys + i] = out[q * kCount + i];
}

/// Asks for the line that vector `Index` of `Vectors` begins, if it is one to ask for. After the
/// last, goes on to the line behind.
template <class Cache, int Vectors, int Index>
HWY_INLINE void askStraight(ReadAhead::Cursor& ahead) {
  constexpr int64_t kBytes =
      static_cast<int64_t>(hn::MaxLanes(F32Tag()) * sizeof(typename Cache::Element));
  if constexpr (Index * kBytes % kStraightBytes == 0)
    ahead.askFor(Index * kBytes / ReadAhead::line);
  if constexpr (Index == Vectors - 1)
    ahead.goOnBy(HWY_MAX(1, Vectors * kBytes / ReadAhead::line));
}

/// The same of one query. Row after row: streams that go straight on are faster than several keys
/// side by side, and there are multiply-adds of other keys to do while one key's wait.
template <class Cache>
HWY_INLINE void scoreRows(const Rows<Cache>& keys, int64_t key, int64_t end,
                          const float* HWY_RESTRICT query, ReadAhead::Cursor& ahead,
                          float* HWY_RESTRICT scores) {
  constexpr int kCount = kKeys<1>;
  const F32Tag f32;
  const Cache cache;
  const size_t lanes = hn::Lanes(f32);
  Registers<kCount> sums;
  unroll<kCount>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
    const auto* row = keys.row(HWY_MIN(key + decltype(i)::value, end - 1));
    auto sum = hn::Zero(f32);
    size_t d = 0;
    const auto straight = [&](auto vectors) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kVectors = decltype(vectors)::value;
      unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
        askStraight<Cache, kVectors, decltype(v)::value>(ahead);
        const size_t at = d + decltype(v)::value * lanes;
        sum = hn::MulAdd(hn::LoadU(f32, query + at), load(cache, row + at), sum);
      });
      d += kVectors * lanes;
    };
    while (d + 8 * lanes <= keys.width)
      straight(Index<8>());
    if (d + 4 * lanes <= keys.width)
      straight(Index<4>());
    for (; d + lanes <= keys.width; d += lanes) {
      ahead.ask(1);
      sum = hn::MulAdd(hn::LoadU(f32, query + d), load(cache, row + d), sum);
    }
    if (const size_t tail = keys.width - d; tail != 0)
      sum = hn::MulAdd(hn::LoadU(f32, query + d),
                       loadLast<Cache>(row + keys.width, tail, keys.width), sum);
    get<decltype(i)::value>(sums) = sum;
  });
  sumLanes(sums, scores);
}

/// Q K^T of `Queries` queries from `query` on and keys of the tile that starts at `tile`. Not
/// inlined: a function of its own for every case compiles much faster.
template <class Cache, int Queries>
HWY_NOINLINE void scoreQueries(const AttentionBlock& block, const Rows<Cache>& keys, int64_t tile,
                               KeyRange range, int64_t query, ReadAhead& ahead) {
  constexpr int kCount = kKeys<Queries>;
  const size_t stride = static_cast<size_t>(block.packedKeyWidth);
  const float* packed = block.query + static_cast<size_t>(query) * stride;
  float* scores = block.scores + query * kAttentionTileKeys - tile;
  const int64_t lines =
      linesOf(2 * kCount * hn::Lanes(F32Tag()) * sizeof(*keys.base), queryPasses(block));
  ReadAhead::Cursor cursor(ahead);
  // Rounded down within the tile.
  int64_t key = tile + (range.begin - tile) / kCount * kCount;
  for (; key < range.end; key += kCount)
    if constexpr (Queries == 1)
      scoreRows(keys, key, range.end, packed, cursor, scores + key);
    else
      scoreBlock<Cache, Queries>(keys, key, range.end, packed, stride, cursor, lines, scores + key);
}

template <class Cache>
void scoreTile(const AttentionBlock& block, const Rows<Cache>& keys, int64_t tile, KeyRange range,
               ReadAhead& ahead) {
  forEachTurn(keys, range, queryPasses(block), [&](KeyRange turn) HWY_ATTR {
    ahead.grantKeys(turn.end - turn.begin);
    forEachQueryBlock(block.queries, [&](auto queries, int64_t query) HWY_ATTR {
      scoreQueries<Cache, decltype(queries)::value>(block, keys, tile, turn, query, ahead);
    });
  });
}

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

/// Units of work that are wanted where heads alone are fewer.
constexpr int64_t kWantedUnits = 16;
/// Keys below which a segment is not worth its merge.
constexpr int64_t kLeastSegment = 512;
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

int64_t mostSegments(int64_t blocks) {
  return blocks == 0 ? 1 : std::max<int64_t>(1, kWantedUnits / blocks);
}

int64_t segmentsOf(const AttentionView& view, int64_t blocks) {
  int64_t longest = view.totalLength;
  if (view.totalLengths)
    longest = *std::max_element(view.totalLengths, view.totalLengths + view.batches);
  if (view.window > 0)
    longest = std::min(longest, view.window + view.queryRows);
  return std::clamp<int64_t>(longest / kLeastSegment, 1, mostSegments(blocks));
}

/// Segment `index` of `count` of a block's keys: whole tiles, so that sums are cut where tiles are.
KeyRange segmentOf(KeyRange keys, int64_t index, int64_t count) {
  const int64_t firstTile = keys.begin / kAttentionTileKeys;
  const int64_t tiles = (keys.end + kAttentionTileKeys - 1) / kAttentionTileKeys - firstTile;
  const auto cut = [&](int64_t i) {
    return std::clamp((firstTile + tiles * i / count) * kAttentionTileKeys, keys.begin, keys.end);
  };
  return {cut(index), cut(index + 1)};
}

/// What segments leave for the merge: counters of the segments that have finished, a block each,
/// and then for each block and segment the maxima, sums and accumulators of its queries.
class Partials {
public:
  Partials(const AttentionView& view, int64_t blocks, std::span<std::byte> memory)
      : queries(attentionBlockQueries(view)), each(queries * (2 + paddedWidth(view.valueWidth))),
        counters(reinterpret_cast<int64_t*>(memory.data())),
        numbers(reinterpret_cast<float*>(memory.data() + counterBytes(blocks))) {}

  static size_t counterBytes(int64_t blocks) { return static_cast<size_t>(blocks) * 64; }
  static size_t bytes(const AttentionView& view, int64_t blocks) {
    const int64_t most = mostSegments(blocks);
    if (most == 1)
      return 0;
    const int64_t floats =
        blocks * most * attentionBlockQueries(view) * (2 + paddedWidth(view.valueWidth));
    return counterBytes(blocks) + static_cast<size_t>(floats) * sizeof(float);
  }

  void put(const AttentionBlock& block, int64_t index) {
    float* to = numbers + index * each;
    to = std::copy_n(block.maximum, block.queries, to);
    to = std::copy_n(block.sum, block.queries, to);
    std::copy_n(block.accumulator, block.queries * block.packedValueWidth, to);
  }

  /// Whether all `segments` of block `index` have finished with this one. What they put is then
  /// visible to this thread.
  bool isLast(int64_t index, int64_t segments) {
    return std::atomic_ref<int64_t>(counters[index * 8]).fetch_add(1, std::memory_order_acq_rel) ==
           segments - 1;
  }

  /// Merges segments [first, first + count) into the block: with M the largest maximum, both sums
  /// and accumulators are sum_s exp(m_s - M) x_s, in the order of the segments.
  void merge(const AttentionBlock& block, int64_t first, int64_t count) const {
    const int64_t width = block.packedValueWidth;
    for (int64_t query = 0; query < block.queries; ++query) {
      const auto maximum = [&](int64_t s) { return numbers[(first + s) * each + query]; };
      float top = maximum(0);
      for (int64_t s = 1; s < count; ++s)
        top = std::max(top, maximum(s));
      float* out = block.accumulator + query * width;
      float sum = 0;
      std::fill_n(out, width, 0.0f);
      for (int64_t s = 0; s < count; ++s) {
        const float* segment = numbers + (first + s) * each;
        const float factor = std::exp(maximum(s) - top);
        const float* from = segment + 2 * block.queries + query * width;
        sum += factor * segment[block.queries + query];
        for (int64_t d = 0; d < width; ++d)
          out[d] += factor * from[d];
      }
      block.maximum[query] = top;
      block.sum[query] = sum;
    }
  }

private:
  static int64_t paddedWidth(int64_t width) {
    return (width + kAttentionMaxLanes - 1) / kAttentionMaxLanes * kAttentionMaxLanes;
  }
  int64_t queries;
  int64_t each;
  int64_t* counters;
  float* numbers;
};

int64_t units(const AttentionView& view) {
  const int64_t blocks = attentionBlocks(view);
  return blocks * segmentsOf(view, blocks);
}

size_t sharedBytes(const AttentionView& view) {
  return Partials::bytes(view, attentionBlocks(view));
}

void run(const AttentionView& view, int64_t unit, std::span<std::byte> scratch,
         std::span<std::byte> shared) {
  const int64_t blocks = attentionBlocks(view);
  const int64_t segments = segmentsOf(view, blocks);
  const int64_t index = unit / segments, segment = unit % segments;
  const AttentionBlock block(view, index, scratch);
  const KeyRange range = segmentOf(block.visibleKeys(), segment, segments);
  HWY_DYNAMIC_DISPATCH(attendRange)(block, range, segment == 0);
  if (segments > 1) {
    Partials partials(view, blocks, shared);
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
