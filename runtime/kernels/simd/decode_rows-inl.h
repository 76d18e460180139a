// How decode attention goes over rows of K or V: which queries together, in which turns, and what
// it asks for ahead.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_DECODE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_ROWS_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_ROWS_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_DECODE_ROWS_INL_H
#endif

#include "runtime/kernels/simd/read_ahead.h"
#include "runtime/kernels/simd/registers-inl.h"
#include "runtime/kernels/simd/vector-inl.h"

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace kvopt::HWY_NAMESPACE {

/// Who goes straight through memory asks for a line in so many bytes. The core's own prefetchers
/// bring those between, sooner than alone, and faster than one who asks for every line.
inline constexpr int64_t kStraightBytes = 256;
/// Rows that several passes go over are taken in turns of about so many bytes.
inline constexpr int64_t kTurnBytes = 16384;

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

} // namespace kvopt::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
