// One unit of work of the tiled kernel: its rows and keys, its scratch memory, and its mask. Plain
// C++; the vector code in attention/tiled.cc uses it.
#pragma once

#include "runtime/simd/attention/attention.h"

#include <utility>

namespace kvopt::simd {

/// Number of keys per tile. Tiles start at multiples of it, so that the order of every sum depends
/// only on the key's position.
inline constexpr int64_t kAttentionTileKeys = 64;

/// Maximum number of f32 lanes; packed rows have room for whole vectors of this length.
inline constexpr int64_t kAttentionMaxLanes = 16;

/// Number of blocks of a view.
int64_t attentionBlocks(const AttentionView& view);
/// Maximum number of queries of a block.
int64_t attentionBlockQueries(const AttentionView& view);
/// Scratch memory of one block in bytes, with room for the scores of `tiles` tiles; independent of
/// T.
size_t attentionBlockBytes(const AttentionView& view, int64_t tiles);
inline size_t attentionBlockBytes(const AttentionView& view) {
  return attentionBlockBytes(view, 1);
}

/// Keys [begin, end).
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Keys that the causal frontier and the window leave visible to query row `row` of a batch row
/// with `total` keys.
KeyRange visibleKeys(const AttentionView& view, int64_t total, int64_t row);

/// Index of the segment that contains position `key`. Requires segments.
size_t segmentOf(const AttentionView& view, int64_t key);
/// End of the segment at `index` of a batch row with `total` keys.
int64_t segmentEnd(const AttentionView& view, size_t index, int64_t total);

/// Mask terms of `keys`: -inf for keys that it hides from query row `row` of `head`.
void readMask(const AttentionView& view, int64_t batch, int64_t head, int64_t row, KeyRange keys,
              float* out);

/// Scales of the rows `keys` of one head of a quantized cache.
void readScales(const float* scales, const RowStrides& strides, int64_t batch, int64_t kvHead,
                KeyRange keys, float* out);

/// Addresses of keys and values of one head, as if position 0 were at `key` and `value`. Distances
/// are in bytes.
struct KeyValueRows {
  const std::byte* key;
  const std::byte* value;
  int64_t keyStride; ///< between rows or, if transposed, between columns
  int64_t valueStride;
  /// First readable position.
  int64_t begin;
};

/// Contiguous keys and their addresses. Empty if the range is empty.
struct LocatedKeys {
  KeyValueRows rows = {};
  KeyRange range;
};

/// A block of query rows of one batch row and key/value head. Its `queries` are the rows times the
/// heads of the group, numbered row by row: query = (row - firstRow) * group + head in group.
struct AttentionBlock {
  AttentionBlock(const AttentionView& view, int64_t unit, std::span<std::byte> scratch,
                 int64_t tiles = 1);

  /// The same block with the scores and corrections of tile `index`, among those with room.
  AttentionBlock withScores(int64_t index) const;

  /// Keys that the causal frontier and the window leave visible to query row `row`.
  KeyRange visibleKeys(int64_t row) const;
  /// Union over the block's rows.
  KeyRange visibleKeys() const;

  /// Writes kAttentionTileKeys terms to `bias`, which are added to the scores of keys from `tile`
  /// on: -inf for keys that the row does not see. Returns false, without writing, if all are zero.
  bool fillBias(int64_t row, int64_t head, int64_t tile) const;

  /// Addresses of the keys of `range`, from its first key on, and the end of those that are
  /// contiguous there: whole tiles in one segment or, if segments share a tile, all of its keys in
  /// `range`, gathered. Rows of four-bit codes are always gathered, as bytes. Overwrites rows that
  /// were gathered before. Requires view.isGathered().
  std::pair<KeyValueRows, int64_t> nextRows(KeyRange range) const;
  /// Keys at the start of `range`, which is not empty, that are contiguous. Not gathered.
  LocatedKeys firstKeys(KeyRange range) const;
  /// Addresses of contiguous keys and values.
  KeyValueRows allRows() const;

  /// Writes the scales of the block's visible keys in the tile, and of their values, to `keyScales`
  /// and `valueScales`; 0 for other keys. Requires quantized caches.
  void fillScales(int64_t tile) const;

  const AttentionView& view;
  int64_t batch;
  int64_t kvHead;
  int64_t group; ///< query heads per key/value head
  int64_t firstRow;
  int64_t rows;
  int64_t queries;
  int64_t total;  ///< T of this batch row
  int64_t offset; ///< T - S: position of query row 0
  int64_t packedKeyWidth;
  int64_t packedValueWidth;

  float* query; ///< [queries, packedKeyWidth]
  /// Room for the queries in digits (code_products.h); null if they cannot be multiplied with codes
  /// in this form.
  int32_t* digits;
  float* accumulator; ///< [queries, packedValueWidth], unnormalized
  /// [queries, kAttentionTileKeys], and kAttentionMaxLanes more, because the last vector of a row
  /// may extend past it. Weights after the softmax step.
  float* scores;
  float* maximum;    ///< [queries], finite
  float* sum;        ///< [queries]
  float* correction; ///< [queries], correction of earlier weights for the new maximum
  float* bias;       ///< [kAttentionTileKeys]
  float* keyScales;  ///< [kAttentionTileKeys] for quantized caches; null for others
  float* valueScales;
  /// [kAttentionTileKeys] rows or columns of keys, and the same number for values, if rows are
  /// gathered; otherwise null.
  std::byte* gathered;

private:
  KeyValueRows rowsAt(const KeyValueSegment& segment) const;
  KeyValueRows gather(KeyRange keys) const;
  KeyValueRows unpack(KeyRange keys) const;
};

} // namespace kvopt::simd
