// How decode attention goes over rows of K or V: which queries together, and in which turns.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_DECODE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_ROWS_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_ROWS_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_DECODE_ROWS_INL_H
#endif

#include "runtime/simd/attention/attention_block.h"
#include "runtime/simd/attention/softmax-inl.h"
#include "runtime/simd/registers-inl.h"
#include "runtime/simd/vector-inl.h"

#include <hwy/highway.h>

#include <cstddef>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

/// How far ahead of its use memory is prefetched: far enough to keep reads in flight while the core
/// computes, near enough that lines are still cached when they are used.
inline constexpr int64_t kAheadBytes = 16384;

/// Whether rows of usual numbers of vectors have loops of their own. Of vectors of 128 bits rows
/// have so many that a loop over them costs little, and compiling takes as long for each target.
inline constexpr bool kHasLoopsForWidths = hn::MaxLanes(F32Tag()) >= 8;

/// Rows of K or V of one head.
template <class Cache> struct Rows {
  using Element = typename Cache::Element;
  /// Row 0 and the distance of rows, in bytes.
  Rows(const std::byte* first, int64_t distance, int64_t columns)
      : base(reinterpret_cast<const Element*>(first)),
        stride(distance / static_cast<int64_t>(sizeof(Element))),
        width(static_cast<size_t>(columns)) {}
  const Element* row(int64_t key) const { return base + key * stride; }
  /// Of a row from column `column` on.
  const Element* row(int64_t key, size_t column) const {
    return row(key) + storedBytes<Cache>(column) / sizeof(Element);
  }
  int64_t rowBytes() const { return static_cast<int64_t>(storedBytes<Cache>(width)); }
  int64_t strideBytes() const { return stride * static_cast<int64_t>(sizeof(Element)); }

  const Element* base;
  int64_t stride;
  size_t width;
};

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

/// The queries of one such block are packed together, the first vector of each and then the second
/// of each: one address and constants are all that loops need. With a row for each query g++ 12
/// keeps an address for every vector, more than there are registers.
inline PackedPlace packedPlace(const AttentionBlock& block, int64_t query) {
  PackedPlace place{};
  forEachQueryBlock(block.queries, [&](auto queries, int64_t first) HWY_ATTR {
    constexpr int kQueries = decltype(queries)::value;
    if (query >= first && query < first + kQueries)
      place = {block.query + first * block.packedKeyWidth +
                   static_cast<size_t>(query - first) * hn::Lanes(F32Tag()),
               kQueries - 1};
  });
  return place;
}
/// The packed queries of the block that starts with `query`.
inline const float* packedQueries(const AttentionBlock& block, int64_t query) {
  return block.query + query * block.packedKeyWidth;
}
/// Of `Queries` of them the vector of query `query` for columns from `column` on.
template <int Queries>
HWY_INLINE F32Vec packedVector(const float* HWY_RESTRICT packed, int query, size_t column) {
  const F32Tag f32;
  return hn::LoadU(f32, packed + column * Queries + static_cast<size_t>(query) * hn::Lanes(f32));
}

/// Calls body(turn) for the parts of `range` that take turns, of about `bytes`, so that what one
/// pass reads from memory the others find in the first-level cache.
template <class Cache, class Body>
HWY_INLINE void forEachTurn(const Rows<Cache>& rows, KeyRange range, int64_t bytes, Body&& body) {
  int64_t keys = kAttentionTileKeys;
  while (keys > 8 && keys * rows.rowBytes() > bytes)
    keys /= 2;
  for (int64_t key = range.begin; key < range.end;) {
    const int64_t end = HWY_MIN(key - key % keys + keys, range.end);
    body(KeyRange{key, end});
    key = end;
  }
}

/// Keys whose scores with `Queries` queries are summed together: as many accumulators as registers
/// allow.
template <int Queries>
inline constexpr int kKeys = Queries == 1                     ? 8
                             : Queries == 2 || kManyRegisters ? 4
                                                              : 2;

/// Sums over lanes of the products of `Queries` queries with kKeys keys each, to rows of a tile.
template <int Queries>
HWY_INLINE void storeScores(const Registers<Queries * kKeys<Queries>>& products,
                            float* HWY_RESTRICT scores) {
  constexpr int kCount = kKeys<Queries>;
  float sums[Queries * kCount];
  sumLanes(products, sums);
  for (int q = 0; q < Queries; ++q)
    std::memcpy(scores + q * kAttentionTileKeys, sums + q * kCount, kCount * sizeof(float));
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
