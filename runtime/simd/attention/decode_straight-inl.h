// Decode attention of few queries with sequential reads: the keys of some tiles row by row, then
// their values. Prefetches later rows of the same plane meanwhile.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_DECODE_STRAIGHT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_STRAIGHT_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_STRAIGHT_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_DECODE_STRAIGHT_INL_H
#endif

#include "runtime/simd/attention/decode_order.h"
#include "runtime/simd/attention/decode_rows-inl.h"
#include "runtime/simd/attention/decode_values-inl.h"
#include "runtime/simd/attention/softmax-inl.h"
#include "runtime/simd/prefetch.h"

#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

inline constexpr bool kHas512Bits = hn::MaxLanes(F32Tag()) >= 16;

/// Size in bytes of the turns in which several passes, for queries or columns, traverse rows.
inline constexpr int64_t kStraightTurnBytes = 4096;

/// Prefetches the row at a fixed distance after the one that is read. After the last row, a few
/// lines are prefetched in vain.
class AskStraight {
public:
  static constexpr int rowsTogether = 1;

  template <class Cache>
  explicit AskStraight(const Rows<Cache>& rows)
      : ahead((kAheadBytes + rows.rowBytes() - 1) / rows.rowBytes() * rows.strideBytes()) {}

  template <size_t> AskStraight start() const { return *this; }
  template <int, int> HWY_INLINE void forPart() {}
  /// A barrier for loads: otherwise the compiler would read several rows together, which is slower.
  template <class Cache, int Index>
  HWY_INLINE void forVector(const typename Cache::Element* vector) {
    // The first of the two vectors of a group of four-bit codes covers all bytes.
    constexpr int64_t kBytes =
        static_cast<int64_t>(storedBytes<Cache>(2 * hn::MaxLanes(F32Tag())) / 2);
    if constexpr (Index * kBytes % straightBytes == 0) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      prefetchStraight(reinterpret_cast<intptr_t>(vector) + ahead);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
  }

private:
  intptr_t ahead; ///< in bytes
};

/// For passes over rows that an earlier pass has prefetched.
class AskNothing {
public:
  static constexpr int rowsTogether = 1;

  template <size_t> AskNothing start() const { return *this; }
  template <int, int> HWY_INLINE void forPart() {}
  template <class Cache, int Index> HWY_INLINE void forVector(const typename Cache::Element*) {}
};

/// Calls body(Index<n>()), where n is the number of the block's queries.
template <class Cache, class Body>
HWY_INLINE void withQueries(const AttentionBlock& block, Body&& body) {
  constexpr int64_t kMost = straightQueries(std::is_same_v<Cache, F32Storage>,
                                            sizeof(typename Cache::Element) > 1, kHas512Bits);
  if constexpr (kMost >= 4)
    if (block.queries == 4)
      return body(Index<4>());
  if constexpr (kMost >= 2)
    if (block.queries == 2)
      return body(Index<2>());
  body(Index<1>());
}

/// Q K^T of the block's queries and the keys `range` of the tiles from `group` on. Rows have
/// `Vectors` vectors or, with 0, any width. Every dot product is one chain of multiply-adds per
/// lane. Not inlined: a separate function for every case compiles much faster.
template <class Cache, int Queries, int Vectors>
HWY_NOINLINE void scoreRows(const AttentionBlock& block, const Rows<Cache>& keys, int64_t group,
                            KeyRange range, AskStraight ask) {
  constexpr int kCount = kKeys<Queries>;
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32), width = keys.width;
  const float* HWY_RESTRICT packed = packedQueries(block, 0);
  // On the stack: loads relative to the stack pointer do not disturb the training of a core's
  // prefetcher by other loads (decision 19).
  constexpr bool kOnStack = Vectors > 0;
  HWY_ALIGN float local[kOnStack ? Queries * Vectors * hn::MaxLanes(f32) : 1];
  if constexpr (kOnStack) {
    for (size_t at = 0; at < Queries * Vectors * lanes; at += lanes)
      hn::Store(hn::LoadU(f32, packed + at), f32, local + at);
    // The value may change wherever the compiler must not move loads, so that they are not hoisted.
    asm volatile("" : : "r"(local) : "memory");
  }
  // Rounded down within the tile; keys after the last one receive its scores.
  int64_t key = range.begin - range.begin % kCount;
  const auto* const last = keys.row(range.end - 1);
  const auto* row = keys.row(key);
  for (; key < range.end; key += kCount) {
    Registers<Queries * kCount> sums;
    unroll<kCount>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
      Registers<Queries> dots;
      size_t d = 0;
      const auto add = [&](F32Vec k, size_t at) HWY_ATTR __attribute__((always_inline)) {
        unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
          auto& dot = get<decltype(q)::value>(dots);
          dot = hn::MulAdd(packedVector<Queries>(kOnStack ? local : packed, decltype(q)::value, at),
                           k, dot);
        });
      };
      const auto run = [&](auto vectors) HWY_ATTR __attribute__((always_inline)) {
        loadColumns<Cache, decltype(vectors)::value>(
            row + storedBytes<Cache>(d) / sizeof(*row),
            [&](auto v, const auto* from) HWY_ATTR __attribute__((always_inline)) {
              ask.template forVector<Cache, decltype(v)::value>(from);
            },
            [&](auto v, F32Vec numbers) HWY_ATTR
            __attribute__((always_inline)) { add(numbers, d + decltype(v)::value * lanes); });
        d += decltype(vectors)::value * lanes;
      };
      if constexpr (Vectors > 0) {
        run(Index<Vectors>());
      } else {
        while (d + 4 * lanes <= width)
          run(Index<4>());
        if constexpr (!std::is_same_v<Cache, FourBitStorage>) {
          while (d + lanes <= width)
            run(Index<1>());
          if (const size_t tail = width - d; tail != 0)
            add(loadLast<Cache>(row + width, tail, width), d);
        }
      }
      unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
        constexpr int kQuery = decltype(q)::value;
        get<kQuery * kCount + decltype(i)::value>(sums) = get<kQuery>(dots);
      });
      row = HWY_MIN(row + keys.stride, last);
    });
    const int64_t inTile = key % kAttentionTileKeys;
    storeScores<Queries>(sums, block.scores + (key - inTile - group) * Queries + inTile);
  }
}

template <class Cache>
void scoreStraight(const AttentionBlock& block, const Rows<Cache>& keys, int64_t group,
                   KeyRange range) {
  const size_t lanes = hn::Lanes(F32Tag());
  const AskStraight ask(keys);
  withQueries<Cache>(block, [&](auto queries) HWY_ATTR {
    constexpr int kQueries = decltype(queries)::value;
    if constexpr (kHasLoopsForWidths) {
      if (keys.width == 4 * lanes)
        return scoreRows<Cache, kQueries, 4>(block, keys, group, range, ask);
      if (keys.width == 8 * lanes)
        return scoreRows<Cache, kQueries, 8>(block, keys, group, range, ask);
      if (keys.width == 16 * lanes)
        return scoreRows<Cache, kQueries, 16>(block, keys, group, range, ask);
    }
    scoreRows<Cache, kQueries, 0>(block, keys, group, range, ask);
  });
}

/// Calls body(part, tile, run) for the tiles of a group that contain keys of `range`: the block
/// with the tile's scores, and its keys.
template <class Body>
HWY_INLINE void forEachTile(const AttentionBlock& block, int64_t group, KeyRange range,
                            Body&& body) {
  for (int64_t tile = range.begin - range.begin % kAttentionTileKeys; tile < range.end;
       tile += kAttentionTileKeys)
    body(block.withScores((tile - group) / kAttentionTileKeys), tile,
         KeyRange{HWY_MAX(tile, range.begin), HWY_MIN(tile + kAttentionTileKeys, range.end)});
}

/// Adds weights times the values `range` of the tiles from `group` on. With Whole, one pass has
/// sums for all vectors of a row.
template <class Cache, int Queries, bool Whole>
HWY_NOINLINE void accumulateRows(const AttentionBlock& block, const Rows<Cache>& values,
                                 int64_t group, KeyRange range) {
  // Four queries are two pairs with whole rows, rather than four with half the columns.
  constexpr int kPass = HWY_MIN(Queries, 2);
  const bool isOnePass = Queries == kPass && values.width <= kVectors<kPass> * hn::Lanes(F32Tag());
  const int64_t turnBytes = isOnePass ? values.rowBytes() * kAttentionTileKeys : kStraightTurnBytes;
  const AskStraight askStraight(values);
  forEachTile(
      block, group, range,
      [&](const AttentionBlock& part, int64_t tile, KeyRange run) HWY_ATTR
      __attribute__((always_inline)) {
        forEachTurn(
            values, run, turnBytes, [&](KeyRange turn) HWY_ATTR __attribute__((always_inline)) {
              const bool isFirst = turn.begin == run.begin;
              const auto pass = [&](int64_t query, const auto& ask) HWY_ATTR
                  __attribute__((always_inline)) {
                if constexpr (Whole)
                  accumulateColumns<Cache, kPass, kVectors<kPass>>(part, values, tile, turn,
                                                                   isFirst, query, ask, 0);
                else
                  accumulateQueries<Cache, kPass>(part, values, tile, turn, isFirst, query, ask);
              };
              pass(0, askStraight);
              if constexpr (Queries > kPass)
                pass(kPass, AskNothing());
            });
      });
}

/// The same for rows of `Vectors` vectors, more than there are registers: their sums are on the
/// stack.
template <class Cache, int Queries, int Vectors>
HWY_NOINLINE void accumulateOnStack(const AttentionBlock& block, const Rows<Cache>& values,
                                    int64_t group, KeyRange range) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32), width = Vectors * lanes;
  const auto packed = static_cast<size_t>(block.packedValueWidth);
  HWY_ALIGN float sums[Queries * Vectors * hn::MaxLanes(f32)];
  for (size_t q = 0; q < Queries; ++q)
    std::copy_n(block.accumulator + q * packed, width, sums + q * width);
  asm volatile("" : : "r"(sums) : "memory"); // as in scoreRows
  AskStraight ask(values);
  forEachTile(
      block, group, range,
      [&](const AttentionBlock& part, int64_t tile, KeyRange run) HWY_ATTR
      __attribute__((always_inline)) {
        for (size_t q = 0; q < Queries; ++q)
          for (size_t at = q * width; at < (q + 1) * width; at += lanes)
            hn::Store(hn::Mul(hn::Load(f32, sums + at), hn::Set(f32, part.correction[q])), f32,
                      sums + at);
        const float* HWY_RESTRICT weights = part.scores - tile;
        const auto* row = values.row(run.begin);
        for (int64_t key = run.begin; key < run.end; ++key, row += values.stride) {
          Registers<Queries> weight;
          unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
            get<decltype(q)::value>(weight) =
                hn::Set(f32, weights[decltype(q)::value * kAttentionTileKeys + key]);
          });
          const auto addVector = [&](auto v, F32Vec value) HWY_ATTR __attribute__((always_inline)) {
            const size_t at = decltype(v)::value * lanes;
            unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
              float* sum = sums + decltype(q)::value * width + at;
              hn::Store(hn::MulAdd(get<decltype(q)::value>(weight), value, hn::Load(f32, sum)), f32,
                        sum);
            });
          };
          loadColumns<Cache, Vectors>(
              row,
              [&](auto v, const auto* from) HWY_ATTR __attribute__((always_inline)) {
                ask.template forVector<Cache, decltype(v)::value>(from);
              },
              addVector);
        }
      });
  for (size_t q = 0; q < Queries; ++q)
    std::copy_n(sums + q * width, width, block.accumulator + q * packed);
}

template <class Cache>
void accumulateStraight(const AttentionBlock& block, const Rows<Cache>& values, int64_t group,
                        KeyRange range) {
  const size_t lanes = hn::Lanes(F32Tag());
  withQueries<Cache>(block, [&](auto queries) HWY_ATTR {
    constexpr int kQueries = decltype(queries)::value;
    if constexpr (kHasLoopsForWidths) {
      if (values.width == kVectors<HWY_MIN(kQueries, 2)> * lanes)
        return accumulateRows<Cache, kQueries, true>(block, values, group, range);
      if constexpr (kQueries <= 2)
        if (values.width == 16 * lanes)
          return accumulateOnStack<Cache, kQueries, 16>(block, values, group, range);
    }
    accumulateRows<Cache, kQueries, false>(block, values, group, range);
  });
}

/// The block must have room for the scores of kStraightTiles tiles.
template <class Cache>
void attendStraight(const AttentionBlock& block, const Rows<Cache>& keys, const Rows<Cache>& values,
                    KeyRange range) {
  constexpr int64_t kGroup = kStraightTiles * kAttentionTileKeys;
  for (int64_t group = range.begin - range.begin % kGroup; group < range.end; group += kGroup) {
    const KeyRange all{HWY_MAX(group, range.begin), HWY_MIN(group + kGroup, range.end)};
    scoreStraight(block, keys, group, all);
    forEachTile(block, group, all,
                [&](const AttentionBlock& part, int64_t tile, KeyRange)
                    HWY_ATTR { softmaxTile(part, tile); });
    accumulateStraight(block, values, group, all);
  }
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
