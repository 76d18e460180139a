// Sums of weights times V for few queries, with values in rows.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_DECODE_VALUES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_VALUES_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_VALUES_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_DECODE_VALUES_INL_H
#endif

#include "runtime/simd/attention/attention_block.h"
#include "runtime/simd/attention/decode_rows-inl.h"

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

/// Adds weights times V for `Queries` queries and `Vectors` vectors of columns, starting at
/// `column`; with Tail, the last `tail` columns, right-aligned. `isFirst`: the keys are the first
/// of a tile, and correct the sums of earlier ones. Before each row and each whole vector is read,
/// `ask` is called for its part of the prefetches for Ask::rowsTogether rows; it is not called for
/// a single last row.
template <class Cache, int Queries, int Vectors, bool Tail = false, class Ask>
HWY_INLINE void accumulateColumns(const AttentionBlock& block, const Rows<Cache>& values,
                                  int64_t tile, KeyRange range, bool isFirst, int64_t query,
                                  const Ask& ask, size_t column, size_t tail = 0) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  const size_t packed = static_cast<size_t>(block.packedValueWidth);
  float* HWY_RESTRICT out = block.accumulator + static_cast<size_t>(query) * packed + column;
  const float* HWY_RESTRICT weights = block.scores + query * kAttentionTileKeys - tile;
  Registers<Queries * Vectors> sums;
  unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
    constexpr int kQuery = decltype(q)::value;
    unroll<Vectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kVector = decltype(v)::value;
      get<kQuery * Vectors + kVector>(sums) =
          hn::LoadU(f32, out + kQuery * packed + kVector * lanes);
    });
  });
  if (isFirst)
    unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
      const auto factor = hn::Set(f32, block.correction[query + decltype(q)::value]);
      unroll<Vectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
        auto& sum = get<decltype(q)::value * Vectors + decltype(v)::value>(sums);
        sum = hn::Mul(sum, factor);
      });
    });
  const auto* row = values.row(range.begin, column);
  constexpr int kTogether = Ask::rowsTogether;
  auto lines = ask.template start<kTogether * storedBytes<Cache>(Vectors * hn::MaxLanes(f32))>();
  const auto addRow = [&](int64_t key) HWY_ATTR __attribute__((always_inline)) {
    Registers<Vectors> v;
    if constexpr (Tail)
      get<0>(v) = loadLast<Cache>(row + tail, tail, column + tail);
    else
      loadColumns<Cache, Vectors>(
          row,
          [&](auto i, const auto* from) HWY_ATTR __attribute__((always_inline)) {
            lines.template forVector<Cache, decltype(i)::value>(from);
          },
          [&](auto i, F32Vec numbers) HWY_ATTR
          __attribute__((always_inline)) { get<decltype(i)::value>(v) = numbers; });
    unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kQuery = decltype(q)::value;
      const auto weight = hn::Set(f32, weights[kQuery * kAttentionTileKeys + key]);
      unroll<Vectors>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
        auto& sum = get<kQuery * Vectors + decltype(i)::value>(sums);
        sum = hn::MulAdd(weight, get<decltype(i)::value>(v), sum);
      });
    });
    row += values.stride;
  };
  int64_t key = range.begin;
  for (; key + kTogether <= range.end; key += kTogether)
    unroll<kTogether>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
      lines.template forPart<decltype(i)::value, kTogether>();
      addRow(key + decltype(i)::value);
    });
  if constexpr (kTogether == 2)
    if (key < range.end)
      addRow(key);
  unroll<Queries>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
    constexpr int kQuery = decltype(q)::value;
    unroll<Vectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kVector = decltype(v)::value;
      hn::StoreU(get<kQuery * Vectors + kVector>(sums), f32,
                 out + kQuery * packed + kVector * lanes);
    });
  });
}

/// A separate function, which compiles much faster than many copies.
template <class Cache, int Queries, int Vectors, bool Tail = false, class Ask>
HWY_NOINLINE void accumulateBlock(const AttentionBlock& block, const Rows<Cache>& values,
                                  int64_t tile, KeyRange range, bool isFirst, int64_t query,
                                  const Ask& ask, size_t column, size_t tail = 0) {
  accumulateColumns<Cache, Queries, Vectors, Tail>(block, values, tile, range, isFirst, query, ask,
                                                   column, tail);
}

/// Number of vectors of columns of one block of sums with `Queries` queries.
template <int Queries>
inline constexpr int kVectors = Queries == 1 || (Queries == 2 && kManyRegisters) ? 8
                                : Queries == 2 || kManyRegisters                 ? 4
                                                                                 : 2;

/// Calls body(Index<n>(), isTail, column, columns) for runs of n = Most vectors of columns, of 4 if
/// Most is 8, and of one. A partial last vector is a tail of `columns` columns; rows of four-bit
/// codes have no tail.
template <class Cache, int Most, class Body>
HWY_INLINE void forEachColumnRun(size_t width, Body&& body) {
  const size_t lanes = hn::Lanes(F32Tag());
  size_t column = 0;
  const auto run = [&](auto vectors) HWY_ATTR {
    const size_t columns = decltype(vectors)::value * lanes;
    body(vectors, std::false_type(), column, columns);
    column += columns;
  };
  while (column + Most * lanes <= width)
    run(Index<Most>());
  if constexpr (Most == 8)
    if (column + 4 * lanes <= width)
      run(Index<4>());
  if constexpr (std::is_same_v<Cache, FourBitStorage>)
    return;
  else {
    while (column + lanes <= width)
      run(Index<1>());
    if (column < width)
      body(Index<1>(), std::true_type(), column, width - column);
  }
}

/// All columns for `Queries` queries.
template <class Cache, int Queries, class Ask>
void accumulateQueries(const AttentionBlock& block, const Rows<Cache>& values, int64_t tile,
                       KeyRange range, bool isFirst, int64_t query, const Ask& ask) {
  forEachColumnRun<Cache, kVectors<Queries>>(
      values.width, [&](auto vectors, auto isTail, size_t column, size_t columns) HWY_ATTR {
        accumulateBlock<Cache, Queries, decltype(vectors)::value, decltype(isTail)::value>(
            block, values, tile, range, isFirst, query, ask, column, columns);
      });
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
