// Decode attention of few queries, straight through memory: the keys of some tiles row after row,
// then their values. What is ahead in the same plane is asked for meanwhile.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_DECODE_STRAIGHT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_STRAIGHT_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_STRAIGHT_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_DECODE_STRAIGHT_INL_H
#endif

#include "runtime/kernels/simd/decode_order.h"
#include "runtime/kernels/simd/decode_rows-inl.h"
#include "runtime/kernels/simd/decode_values-inl.h"
#include "runtime/kernels/simd/prefetch.h"
#include "runtime/kernels/simd/softmax-inl.h"

#include <hwy/highway.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace kvopt::HWY_NAMESPACE {

/// Who goes straight on asks for a line in so many bytes. The core's own prefetchers bring those
/// between, sooner than alone, and faster than one who asks for every line.
inline constexpr int64_t kStraightBytes = 256;
/// Rows that several passes go over, for queries or columns each, are taken in turns of about so
/// many bytes.
inline constexpr int64_t kStraightTurnBytes = 4096;

template <class Cache>
inline constexpr int64_t kStraightQueries = straightQueries(!std::is_same_v<Cache, F32Storage>);

/// Asks for the row some rows behind the one that is read. Behind the last there is none: a few
/// lines are read in vain.
class AskStraight {
public:
  template <class Cache>
  explicit AskStraight(const Rows<Cache>& rows)
      : ahead((kAheadBytes + rows.rowBytes() - 1) / rows.rowBytes() * rows.strideBytes()) {}

  AskStraight start(size_t) const { return *this; }
  HWY_INLINE void forRow() {}
  /// No load crosses it: the compiler would read rows side by side, which takes half as long again.
  template <class Cache, int Index>
  HWY_INLINE void forVector(const typename Cache::Element* vector) {
    constexpr int64_t kBytes =
        static_cast<int64_t>(hn::MaxLanes(F32Tag()) * sizeof(typename Cache::Element));
    if constexpr (Index * kBytes % kStraightBytes == 0) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      prefetchLine(reinterpret_cast<const void*>(reinterpret_cast<intptr_t>(vector) + ahead));
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
  }

private:
  intptr_t ahead; ///< in bytes
};

/// For passes over rows that a pass before has asked for.
class AskNothing {
public:
  AskNothing start(size_t) const { return *this; }
  HWY_INLINE void forRow() {}
  template <class Cache, int Index> HWY_INLINE void forVector(const typename Cache::Element*) {}
};

/// Calls body(ask) for the pass of queries from `query` on: the first asks.
template <class Cache, class Body>
HWY_INLINE void forPass(const Rows<Cache>& rows, int64_t query, Body&& body) {
  if (query == 0)
    body(AskStraight(rows));
  else
    body(AskNothing());
}

/// Q K^T of `Queries` queries from `query` on and the keys `range` of the tile that starts at
/// `tile`. Rows have 8 vectors, a multiple of 4 or, with Vectors = 0, any width. Every dot product
/// is one chain of multiply-adds per lane. Not inlined: a function of its own for every case
/// compiles much faster.
template <class Cache, int Queries, int Vectors, class Ask>
HWY_NOINLINE void scoreRows(const AttentionBlock& block, const Rows<Cache>& keys, int64_t tile,
                            KeyRange range, int64_t query, Ask ask) {
  constexpr int kCount = kKeys<Queries>;
  const F32Tag f32;
  const Cache cache;
  const size_t lanes = hn::Lanes(f32), width = keys.width;
  const float* HWY_RESTRICT packed = packedQueries(block, query);
  float* HWY_RESTRICT scores = block.scores + query * kAttentionTileKeys - tile;
  // Rounded down within the tile; keys behind the last get its scores.
  int64_t key = tile + (range.begin - tile) / kCount * kCount;
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
          dot = hn::MulAdd(packedVector<Queries>(packed, decltype(q)::value, at), k, dot);
        });
      };
      const auto run = [&](auto vectors) HWY_ATTR __attribute__((always_inline)) {
        unroll<decltype(vectors)::value>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
          const size_t at = d + decltype(v)::value * lanes;
          ask.template forVector<Cache, decltype(v)::value>(row + at);
          add(load(cache, row + at), at);
        });
        d += decltype(vectors)::value * lanes;
      };
      if constexpr (Vectors > 0) {
        do
          run(Index<Vectors>());
        while (Vectors < 8 && d < width);
      } else {
        while (d + lanes <= width)
          run(Index<1>());
        if (const size_t tail = width - d; tail != 0)
          add(loadLast<Cache>(row + width, tail, width), d);
      }
      unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
        constexpr int kQuery = decltype(q)::value;
        get<kQuery * kCount + decltype(i)::value>(sums) = get<kQuery>(dots);
      });
      row = HWY_MIN(row + keys.stride, last);
    });
    storeScores<Queries>(sums, scores + key);
  }
}

template <class Cache, int Queries, class Ask>
void scoreQueriesStraight(const AttentionBlock& block, const Rows<Cache>& keys, int64_t tile,
                          KeyRange range, int64_t query, Ask ask) {
  const size_t lanes = hn::Lanes(F32Tag());
  if (keys.width == 8 * lanes)
    scoreRows<Cache, Queries, 8>(block, keys, tile, range, query, ask);
  else if (keys.width % (4 * lanes) == 0)
    scoreRows<Cache, Queries, 4>(block, keys, tile, range, query, ask);
  else
    scoreRows<Cache, Queries, 0>(block, keys, tile, range, query, ask);
}

/// Bytes of a turn over `rows`: all of a tile's rows where one pass is all there is.
template <class Cache> int64_t straightTurnBytes(const Rows<Cache>& rows, bool isOnePass) {
  return isOnePass ? rows.rowBytes() * kAttentionTileKeys : kStraightTurnBytes;
}

template <class Cache>
void scoreStraight(const AttentionBlock& block, const Rows<Cache>& keys, int64_t tile,
                   KeyRange range) {
  if constexpr (kStraightQueries<Cache> == 1) {
    scoreQueriesStraight<Cache, 1>(block, keys, tile, range, 0, AskStraight(keys));
  } else {
    const int64_t bytes = straightTurnBytes(keys, /*isOnePass*/ block.queries != 3);
    forEachTurn(keys, range, bytes, [&](KeyRange turn) HWY_ATTR {
      forEachQueryBlock(block.queries, [&](auto queries, int64_t query) HWY_ATTR {
        forPass(keys, query, [&](auto ask) HWY_ATTR {
          scoreQueriesStraight<Cache, decltype(queries)::value>(block, keys, tile, turn, query,
                                                                ask);
        });
      });
    });
  }
}

template <class Cache>
void accumulateStraight(const AttentionBlock& block, const Rows<Cache>& values, int64_t tile,
                        KeyRange range) {
  const int64_t queries = block.queries;
  const auto columns =
      static_cast<int64_t>((queries == 1 ? kVectors<1> : kVectors<2>)*hn::Lanes(F32Tag()));
  const bool isOnePass = queries <= 2 && block.view.valueWidth <= columns;
  forEachTurn(values, range, straightTurnBytes(values, isOnePass), [&](KeyRange turn) HWY_ATTR {
    const auto accumulate = [&](auto count, int64_t query, auto ask) HWY_ATTR {
      accumulateQueries<Cache, decltype(count)::value>(block, values, tile, turn,
                                                       turn.begin == range.begin, query, ask);
    };
    if constexpr (kStraightQueries<Cache> == 1) {
      accumulate(Index<1>(), 0, AskStraight(values));
    } else {
      // Of four queries twice two, with whole rows, rather than all four with half the columns.
      int64_t query = 0;
      for (; query + 2 <= queries; query += 2)
        forPass(values, query, [&](auto ask) HWY_ATTR { accumulate(Index<2>(), query, ask); });
      if (query < queries)
        forPass(values, query, [&](auto ask) HWY_ATTR { accumulate(Index<1>(), query, ask); });
    }
  });
}

/// The block must have room for the scores of kStraightTiles tiles.
template <class Cache>
void attendStraight(const AttentionBlock& block, const Rows<Cache>& keys, const Rows<Cache>& values,
                    KeyRange range) {
  constexpr int64_t kGroup = kStraightTiles * kAttentionTileKeys;
  for (int64_t group = range.begin - range.begin % kGroup; group < range.end; group += kGroup) {
    const KeyRange all{HWY_MAX(group, range.begin), HWY_MIN(group + kGroup, range.end)};
    const auto forEachTile = [&](auto&& body) HWY_ATTR {
      for (int64_t tile = all.begin - all.begin % kAttentionTileKeys; tile < all.end;
           tile += kAttentionTileKeys)
        body(block.withScores((tile - group) / kAttentionTileKeys), tile,
             KeyRange{HWY_MAX(tile, all.begin), HWY_MIN(tile + kAttentionTileKeys, all.end)});
    };
    forEachTile([&](const AttentionBlock& part, int64_t tile, KeyRange run)
                    HWY_ATTR { scoreStraight(part, keys, tile, run); });
    forEachTile([&](const AttentionBlock& part, int64_t tile, KeyRange)
                    HWY_ATTR { softmaxTile(part, tile); });
    forEachTile([&](const AttentionBlock& part, int64_t tile, KeyRange run)
                    HWY_ATTR { accumulateStraight(part, values, tile, run); });
  }
}

} // namespace kvopt::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
