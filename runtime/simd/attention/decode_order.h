// In which order decode attention reads K and V: straight on, or in turns.
#pragma once

#include "runtime/simd/attention/attention_block.h"

namespace kvopt::simd {

/// The most queries of blocks that read rows one after the other, kStraightTiles tiles of K and
/// then their V, in caches of elements that are f32, that are wider than a byte, or neither. Memory
/// is read fastest so; but with more queries, above all where elements are converted and without
/// registers of 512 bits, rows side by side need fewer loads for each multiply-add.
constexpr int64_t straightQueries(bool isF32, bool isWide, bool has512Bits) {
  return isF32 && has512Bits ? 4 : isWide ? 2 : 1;
}

/// Whether the blocks of a view do.
inline bool decodesStraight(const AttentionView& view, bool has512Bits) {
  const bool isWide = !view.isQuantized();
  const bool isF32 = isWide && view.cacheStorage == FloatStorage::f32;
  const int64_t queries = attentionBlockQueries(view);
  // Three would be two passes.
  return queries <= straightQueries(isF32, isWide, has512Bits) && queries != 3;
}

inline constexpr int64_t kStraightTiles = 16;

/// Tiles whose scores a block keeps, whatever registers there are.
inline int64_t decodeTiles(const AttentionView& view) {
  return decodesStraight(view, /*has512Bits*/ true) ? kStraightTiles : 1;
}

} // namespace kvopt::simd
