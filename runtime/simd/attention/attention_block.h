// One unit of work of the tiled kernel: which rows and keys it covers, where its scratch lies, what
// its mask says. Plain C++; the vector code in attention/tiled.cc computes with it.
#pragma once

#include "runtime/simd/attention/attention.h"

#include <utility>

namespace kvopt::simd {

/// Keys are taken in tiles that start at multiples of this, so that the order of every sum is a
/// property of the key's position alone.
inline constexpr int64_t kAttentionTileKeys = 64;

/// Packed rows have room for whole vectors of up to this many f32 lanes.
inline constexpr int64_t kAttentionMaxLanes = 16;

/// The number of blocks that a view divides into.
int64_t attentionBlocks(const AttentionView& view);
/// The most queries of a block.
int64_t attentionBlockQueries(const AttentionView& view);
/// Bytes of scratch of one block with room for the scores of `tiles` tiles; independent of T.
size_t attentionBlockBytes(const AttentionView& view, int64_t tiles);
inline size_t attentionBlockBytes(const AttentionView& view) {
  return attentionBlockBytes(view, 1);
}

/// Keys [begin, end).
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// The keys that the causal frontier and the window leave to query row `row` of a batch row with
/// `total` keys.
KeyRange visibleKeys(const AttentionView& view, int64_t total, int64_t row);

/// The index of the segment that position `key` lies in; there must be segments.
size_t segmentOf(const AttentionView& view, int64_t key);
/// The end of the segment at `index` of a batch row with `total` keys.
int64_t segmentEnd(const AttentionView& view, size_t index, int64_t total);

/// The mask's terms for `keys`: -inf for keys that it hides from query row `row` of `head`.
void readMask(const AttentionView& view, int64_t batch, int64_t head, int64_t row, KeyRange keys,
              float* out);

/// The scales of the rows `keys` of one head of a quantized cache.
void readScales(const float* scales, const RowStrides& strides, int64_t batch, int64_t kvHead,
                KeyRange keys, float* out);

/// Where keys and values of one head lie: as if position 0 was at `key` and `value`. Distances are
/// in bytes.
struct KeyValueRows {
  const std::byte* key;
  const std::byte* value;
  int64_t keyStride; ///< from row to row or, transposed, from column to column
  int64_t valueStride;
  /// Positions from here on may be read.
  int64_t begin;
};

/// Keys in one piece, and where they lie. None if the range is empty.
struct LocatedKeys {
  KeyValueRows rows = {};
  KeyRange range;
};

/// A block of query rows of one batch row and key/value head. The rows times the heads of the
/// group are its `queries`, numbered row by row: query = (row - firstRow) * group + head in group.
struct AttentionBlock {
  AttentionBlock(const AttentionView& view, int64_t unit, std::span<std::byte> scratch,
                 int64_t tiles = 1);

  /// The same block with the scores and corrections of tile `index` of those there is room for.
  AttentionBlock withScores(int64_t index) const;

  /// The keys that the causal frontier and the window leave to query row `row`.
  KeyRange visibleKeys(int64_t row) const;
  /// The union over the block's rows.
  KeyRange visibleKeys() const;

  /// Writes the kAttentionTileKeys terms to add to the scores of keys from `tile` on into `bias`:
  /// -inf for keys that the row does not see. Returns false, and writes nothing, if all are zero.
  bool fillBias(int64_t row, int64_t head, int64_t tile) const;

  /// Where the keys of `range` lie, from its first on, and the end of those that lie there: whole
  /// tiles in one segment or, of a tile that segments share, all of its keys in `range`, gathered.
  /// Rows of four-bit codes are always gathered, as bytes. What was gathered before is gone.
  /// Requires view.isGathered().
  std::pair<KeyValueRows, int64_t> nextRows(KeyRange range) const;
  /// Those keys of `range`, which is not empty, that lie in one piece with its first. Not gathered.
  LocatedKeys firstKeys(KeyRange range) const;
  /// Where keys and values in one piece lie.
  KeyValueRows allRows() const;

  /// Writes the scales of the block's visible keys in the tile, and of their values, into
  /// `keyScales` and `valueScales`; 0 for other keys. The caches must be quantized.
  void fillScales(int64_t tile) const;

  const AttentionView& view;
  int64_t batch;
  int64_t kvHead;
  int64_t group; ///< query heads per key/value head
  int64_t firstRow;
  int64_t rows;
  int64_t queries;
  int64_t total;  ///< T of this batch row
  int64_t offset; ///< T - S: the position of query row 0
  int64_t packedKeyWidth;
  int64_t packedValueWidth;

  float* query; ///< [queries, packedKeyWidth]
  /// Room for the queries in digits (code_products.h), if they may be multiplied so with codes;
  /// null if not.
  int32_t* digits;
  float* accumulator; ///< [queries, packedValueWidth], unnormalized
  /// [queries, kAttentionTileKeys], and kAttentionMaxLanes more: a vector that ends a row may reach
  /// into what follows it. After the softmax step, weights.
  float* scores;
  float* maximum;    ///< [queries], finite
  float* sum;        ///< [queries]
  float* correction; ///< [queries], what the new maximum does to older weights
  float* bias;       ///< [kAttentionTileKeys]
  float* keyScales;  ///< [kAttentionTileKeys] of quantized caches; null for others
  float* valueScales;
  /// [kAttentionTileKeys] rows of keys, or that many columns, and as many of values, where rows
  /// are gathered; null where not.
  std::byte* gathered;

private:
  KeyValueRows rowsAt(const KeyValueSegment& segment) const;
  KeyValueRows gather(KeyRange keys) const;
  KeyValueRows unpack(KeyRange keys) const;
};

} // namespace kvopt::simd
