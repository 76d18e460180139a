// Decode attention of many queries: rows of a tile in turns, over which several passes go, while
// the next rows are prefetched.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_DECODE_TURNS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_TURNS_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_TURNS_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_DECODE_TURNS_INL_H
#endif

#include "runtime/simd/attention/attention_block.h"
#include "runtime/simd/attention/code_products.h"
#include "runtime/simd/attention/decode_panels-inl.h"
#include "runtime/simd/attention/decode_rows-inl.h"
#include "runtime/simd/attention/decode_values-inl.h"
#include "runtime/simd/attention/read_ahead.h"
#include "runtime/simd/attention/softmax-inl.h"

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

/// Size in bytes of the turns in which several passes traverse rows.
inline constexpr int64_t kTurnBytes = 16384;

inline QueryDigits queryDigits(const AttentionBlock& block) {
  return {block.digits, block.view.keyWidth, block.queries};
}

/// Writes the packed queries of a block with room for digits. Returns false if it has none, or if a
/// query cannot be represented in digits.
inline bool writeDigits(const AttentionBlock& block) {
  constexpr size_t kDigitLanes = 16;
  if (!block.digits || hn::Lanes(F32Tag()) != kDigitLanes)
    return false;
  for (int64_t query = 0; query < block.queries; ++query) {
    const PackedPlace place = packedPlace(block, query);
    const auto distance = static_cast<int64_t>(kDigitLanes * (1 + place.between));
    if (!writeDigits(place.first, distance, queryDigits(block), query))
      return false;
  }
  return true;
}

/// Number of times that forEachQueryBlock calls its body.
inline int64_t queryPasses(const AttentionBlock& block) { return (block.queries + 3) / 4; }

/// Prefetches lines for work on `Bytes` of rows, in the order of a ReadAhead, when all passes share
/// the prefetches. Spread evenly, because bursts are dropped.
/// passes over them ask for the same: evenly, for bursts are dropped.
template <size_t Bytes> class SharedLines {
public:
  SharedLines(ReadAhead& readAhead, int64_t passes)
      : cursor(readAhead),
        count((kBytes + ReadAhead::line * passes - 1) / (ReadAhead::line * passes)) {}

  /// Called before part `Part` of the one or two equal parts of the work.
  template <int Part, int Parts> HWY_INLINE void forPart() {
    static_assert(Part < Parts && Parts <= 2);
    // More lines need a loop: without it, g++ 12 reads several rows together.
    if constexpr (kBytes <= ReadAhead::line) {
      if constexpr (Part == 0)
        cursor.ask(1);
    } else if constexpr (Parts == 1)
      cursor.ask(count);
    else
      cursor.ask(Part == 0 ? count - count / 2 : count / 2);
  }

private:
  static constexpr auto kBytes = static_cast<int64_t>(Bytes);
  ReadAhead::Cursor cursor;
  int64_t count;
};

/// Prefetches such lines with rows of values.
class AskInTurns {
public:
  /// With few registers, a row has so few multiply-adds that the loop and its prefetches take as
  /// long.
  static constexpr int rowsTogether = kManyRegisters ? 1 : 2;

  AskInTurns(ReadAhead& readAhead, int64_t passCount) : ahead(readAhead), passes(passCount) {}

  template <size_t Bytes> class Lines : public SharedLines<Bytes> {
  public:
    using SharedLines<Bytes>::SharedLines;
    template <class Cache, int Index> HWY_INLINE void forVector(const typename Cache::Element*) {}
  };
  template <size_t Bytes> Lines<Bytes> start() const { return {ahead, passes}; }

private:
  ReadAhead& ahead;
  int64_t passes; ///< over the same bytes
};

/// Scores of `Queries` packed queries and kKeys keys, starting at `key`; keys from `end` on receive
/// the score of the last one before. Rows have 8 vectors or, with Vectors = 0, any width. Every dot
/// product is one chain of multiply-adds per lane. Prefetches `lines` while it computes with two
/// vectors of each key.
template <class Cache, int Queries, int Vectors, class Lines>
HWY_INLINE void scoreBlock(const Rows<Cache>& keys, int64_t key, int64_t end,
                           const float* HWY_RESTRICT packed, Lines& lines,
                           float* HWY_RESTRICT scores) {
  constexpr int kCount = kKeys<Queries>;
  const F32Tag f32;
  const Cache cache;
  const size_t lanes = hn::Lanes(f32);
  const typename Cache::Element* rows[kCount];
  for (int i = 0; i < kCount; ++i)
    rows[i] = keys.row(HWY_MIN(key + i, end - 1));
  Registers<Queries * kCount> sums;
  size_t d = 0;
  const auto add = [&](const Registers<kCount>& k, size_t at) HWY_ATTR
      __attribute__((always_inline)) {
    unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kQuery = decltype(q)::value;
      auto vector = packedVector<Queries>(packed, kQuery, at);
#if HWY_TARGET == HWY_AVX2
      // In a register: g++ 12 would make it a memory operand of every multiply-add, and cores that
      // execute two of these per cycle load at most two vectors.
      asm("" : "+x"(vector.raw));
#endif
      unroll<kCount>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
        auto& sum = get<kQuery * kCount + decltype(i)::value>(sums);
        sum = hn::MulAdd(vector, get<decltype(i)::value>(k), sum);
      });
    });
  };
  const auto step = [&](size_t at) HWY_ATTR __attribute__((always_inline)) {
    Registers<kCount> k;
    unroll<kCount>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
      const auto* from = rows[decltype(i)::value] + at;
      get<decltype(i)::value>(k) = load(cache, from);
    });
    add(k, at);
  };
  // Two vectors at a time: with fewer, a loop costs as much as its sums.
  const auto two = [&](size_t at) HWY_ATTR __attribute__((always_inline)) {
    lines.template forPart<0, 2>();
    step(at);
    lines.template forPart<1, 2>();
    step(at + lanes);
  };
  if constexpr (Vectors == 8)
    unroll<4>([&](auto i) HWY_ATTR
              __attribute__((always_inline)) { two(2 * decltype(i)::value * lanes); });
  else {
    for (; d + 2 * lanes <= keys.width; d += 2 * lanes)
      two(d);
    if (d + lanes <= keys.width) {
      step(d);
      d += lanes;
    }
    if (const size_t tail = keys.width - d; tail != 0) {
      Registers<kCount> k;
      unroll<kCount>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
        get<decltype(i)::value>(k) =
            loadLast<Cache>(rows[decltype(i)::value] + keys.width, tail, keys.width);
      });
      add(k, d);
    }
  }
  storeScores<Queries>(sums, scores);
}

/// Q K^T of `Queries` queries, starting at `query`, and keys of the tile that starts at `tile`. Not
/// inlined: a separate function for every case compiles much faster.
template <class Cache, int Queries, int Vectors>
HWY_NOINLINE void scoreQueries(const AttentionBlock& block, const Rows<Cache>& keys, int64_t tile,
                               KeyRange range, int64_t query, ReadAhead& ahead) {
  constexpr int kCount = kKeys<Queries>;
  const float* packed = packedQueries(block, query);
  float* scores = block.scores + query * kAttentionTileKeys - tile;
  SharedLines<2 * kCount * hn::MaxLanes(F32Tag()) * sizeof(typename Cache::Element)> lines(
      ahead, queryPasses(block));
  // Rounded down within the tile.
  int64_t key = tile + (range.begin - tile) / kCount * kCount;
  for (; key < range.end; key += kCount)
    scoreBlock<Cache, Queries, Vectors>(keys, key, range.end, packed, lines, scores + key);
}

template <class Cache>
void scoreRowsInTurns(const AttentionBlock& block, const Rows<Cache>& keys, int64_t tile,
                      KeyRange range, ReadAhead& ahead) {
  forEachTurn(keys, range, kTurnBytes, [&](KeyRange turn) HWY_ATTR {
    ahead.grantKeys(turn.end - turn.begin);
    forEachQueryBlock(block.queries, [&](auto queries, int64_t query) HWY_ATTR {
      constexpr int kQueries = decltype(queries)::value;
      if constexpr (kHasLoopsForWidths)
        if (keys.width == 8 * hn::Lanes(F32Tag()))
          return scoreQueries<Cache, kQueries, 8>(block, keys, tile, turn, query, ahead);
      scoreQueries<Cache, kQueries, 0>(block, keys, tile, turn, query, ahead);
    });
  });
}

/// Four-bit codes need digits.
template <class Cache>
void scoreTile(const AttentionBlock& block, const Rows<Cache>& keys, int64_t tile, KeyRange range,
               ReadAhead& ahead) {
  constexpr bool kIsFourBit = std::is_same_v<Cache, FourBitStorage>;
  if constexpr (kIsFourBit || std::is_same_v<Cache, I8Storage>)
    if (block.digits)
      return scoreCodes({reinterpret_cast<const int8_t*>(keys.base), keys.stride, kIsFourBit}, tile,
                        range, queryDigits(block), ahead, block.scores);
  if constexpr (!kIsFourBit)
    scoreRowsInTurns(block, keys, tile, range, ahead);
}

template <class Cache>
void accumulateTile(const AttentionBlock& block, const Rows<Cache>& values, int64_t tile,
                    KeyRange range, ReadAhead& ahead) {
  const AskInTurns ask(ahead, queryPasses(block));
  if (queryPasses(block) > 1 && ahead.bringsValuesWithKeys())
    return accumulatePanels(block, values, tile, range, ahead, ask);
  forEachTurn(values, range, kTurnBytes, [&](KeyRange turn) HWY_ATTR {
    ahead.grantValues(turn.end - turn.begin);
    forEachQueryBlock(block.queries, [&](auto queries, int64_t query) HWY_ATTR {
      accumulateQueries<Cache, decltype(queries)::value>(block, values, tile, turn,
                                                         turn.begin == range.begin, query, ask);
    });
  });
}

/// `following` is read after `range`.
template <class Cache>
void attendInTurns(const AttentionBlock& block, const Rows<Cache>& keys, const Rows<Cache>& values,
                   KeyRange range, const LocatedKeys& following) {
  const auto planeOf = [](const Rows<Cache>& rows) {
    return CachePlane{reinterpret_cast<const std::byte*>(rows.base), rows.strideBytes(),
                      rows.rowBytes()};
  };
  ReadAhead ahead(planeOf(keys), planeOf(values), range, kAheadBytes);
  ahead.follow(planeOf({following.rows.key, following.rows.keyStride, block.view.keyWidth}),
               planeOf({following.rows.value, following.rows.valueStride, block.view.valueWidth}),
               following.range);
  ReadAhead::Cursor(ahead).ask(kAheadBytes / ReadAhead::line);
  int64_t tile = range.begin - range.begin % kAttentionTileKeys;
  for (; tile < range.end; tile += kAttentionTileKeys) {
    const KeyRange part{HWY_MAX(tile, range.begin), HWY_MIN(tile + kAttentionTileKeys, range.end)};
    scoreTile(block, keys, tile, part, ahead);
    softmaxTile(block, tile);
    accumulateTile(block, values, tile, part, ahead);
  }
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
