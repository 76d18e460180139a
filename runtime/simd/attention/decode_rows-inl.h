// Traversal of rows of K or V by decode attention: groups of queries, and turns.
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

/// Prefetch distance: far enough to keep reads in flight while the core computes, but near enough
/// for lines to be still cached when they are used.
inline constexpr int64_t kAheadBytes = 16384;

/// Whether rows with common numbers of vectors have separate loops. With vectors of 128 bits, rows
/// have enough vectors for a generic loop to be cheap, while compilation takes equally long for
/// each target.
inline constexpr bool kHasLoopsForWidths = hn::MaxLanes(F32Tag()) >= 8;

/// Rows of K or V of one head.
template <class Cache> struct Rows {
  using Element = typename Cache::Element;
  /// First row and distance of rows, in bytes.
  Rows(const std::byte* first, int64_t distance, int64_t columns)
      : base(reinterpret_cast<const Element*>(first)),
        stride(distance / static_cast<int64_t>(sizeof(Element))),
        width(static_cast<size_t>(columns)) {}
  const Element* row(int64_t key) const { return base + key * stride; }
  /// Address in a row, starting at column `column`.
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

/// The queries of a block are packed together: the first vector of each, then the second vector of
/// each, and so on. Loops then need only one address and constants. With a row for each query, g++
/// 12 keeps an address for every vector, which exceeds the number of registers.
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
/// Packed queries of the block that starts with `query`.
inline const float* packedQueries(const AttentionBlock& block, int64_t query) {
  return block.query + query * block.packedKeyWidth;
}
/// Vector of query `query`, among `Queries`, for columns from `column` on.
template <int Queries>
HWY_INLINE F32Vec packedVector(const float* HWY_RESTRICT packed, int query, size_t column) {
  const F32Tag f32;
  return hn::LoadU(f32, packed + column * Queries + static_cast<size_t>(query) * hn::Lanes(f32));
}

/// Calls body(turn) for parts of `range` of about `bytes` bytes, so that data which one pass reads
/// from memory is in the first-level cache for the others.
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

/// Number of keys whose scores with `Queries` queries are summed together, limited by the number of
/// registers for accumulators.
template <int Queries>
inline constexpr int kKeys = Queries == 1                     ? 8
                             : Queries == 2 || kManyRegisters ? 4
                                                              : 2;

/// Sums the products of `Queries` queries with kKeys keys each over lanes, and stores them in rows
/// of a tile.
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
