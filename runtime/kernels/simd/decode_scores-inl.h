// Q K^T of few queries over keys in rows.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_DECODE_SCORES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_SCORES_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_SCORES_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_DECODE_SCORES_INL_H
#endif

#include "runtime/kernels/simd/attention_block.h"
#include "runtime/kernels/simd/decode_rows-inl.h"

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace kvopt::HWY_NAMESPACE {

/// Keys of one block of scores with `Queries` queries: as many accumulators as registers allow.
template <int Queries>
inline constexpr int kKeys = Queries == 1                     ? 8
                             : Queries == 2 || kManyRegisters ? 4
                                                              : 2;

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

} // namespace kvopt::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
