// Order in which decode attention reads K and V: sequentially or in turns.
#pragma once

#include "runtime/simd/attention/attention_block.h"

namespace kvopt::simd {

/// Maximum number of queries of blocks that read rows sequentially, kStraightTiles tiles of K and
/// then their V, in caches whose elements are f32, wider than a byte, or neither. This is the
/// fastest way to read memory. With more queries, however, reading several rows together needs
/// fewer loads for each multiply-add, particularly if elements are converted and registers have
/// fewer than 512 bits.
constexpr int64_t straightQueries(bool isF32, bool isWide, bool has512Bits) {
  return isF32 && has512Bits ? 4 : isWide ? 2 : 1;
}

/// Whether the blocks of a view read rows sequentially.
inline bool decodesStraight(const AttentionView& view, bool has512Bits) {
  const bool isWide = !view.isQuantized();
  const bool isF32 = isWide && view.cacheStorage == FloatStorage::f32;
  const int64_t queries = attentionBlockQueries(view);
  // Three would need two passes.
  return queries <= straightQueries(isF32, isWide, has512Bits) && queries != 3;
}

inline constexpr int64_t kStraightTiles = 16;

/// Number of tiles whose scores a block keeps, independently of the registers.
inline int64_t decodeTiles(const AttentionView& view) {
  return decodesStraight(view, /*has512Bits*/ true) ? kStraightTiles : 1;
}

} // namespace kvopt::simd
