// One unit of work of the prefill kernel: its queries and keys, and its scratch memory. Plain C++;
// the vector code in attention/prefill.cc uses it.
#pragma once

#include "runtime/simd/attention/attention_block.h"

namespace kvopt::simd {

/// Maximum number of rows of a product's left operand that are processed together.
inline constexpr int64_t kPanelMaxRows = 8;
/// Maximum number of vectors of queries that a product processes together.
inline constexpr int64_t kPanelMaxVectors = 3;
inline constexpr int64_t kPanelMaxLanes = kPanelMaxVectors * kAttentionMaxLanes;

/// Number of blocks of a view.
int64_t prefillBlocks(const AttentionView& view);
/// Scratch memory of one block in bytes; independent of T.
size_t prefillBlockBytes(const AttentionView& view);

/// A block of queries of one batch row and key/value head. The query rows times the heads of the
/// group are numbered row by row: a query is row * group + head in group. A block is any range of
/// them, so that a row's heads may be in two blocks.
///
/// Queries are in lanes. A panel is up to kPanelMaxVectors vectors of queries; a matrix [n,
/// queries] is stored panel by panel, each [n, lanes of the panel]. Lanes after the last query
/// compute it again.
struct PrefillBlock {
  PrefillBlock(const AttentionView& view, int64_t unit, std::span<std::byte> scratch);

  /// Query row and query head of lane `lane` of the block.
  int64_t row(int64_t lane) const { return query(lane) / group; }
  int64_t head(int64_t lane) const { return kvHead * group + query(lane) % group; }

  const AttentionView& view;
  int64_t batch;
  int64_t kvHead;
  int64_t group;   ///< query heads per key/value head
  int64_t queries; ///< number of queries of this block
  int64_t total;   ///< T of this batch row
  /// Number of keys per tile. Tiles start at multiples of it, so that the order of every sum
  /// depends only on the key's position.
  int64_t tileKeys;

  float* packedQueries; ///< [keyWidth, queries]
  float* output;        ///< [valueWidth, queries], unnormalized; width rounded up to kPanelMaxRows
  float* maximum;       ///< [queries], finite
  float* sum;           ///< [queries]
  int64_t* begin;       ///< [queries]: keys that causality and window leave visible to each
  int64_t* end;

  /// K of a tile as f32: [tileKeys, keyStride]. For a transposed K, blocks of `n` keys, each
  /// [keyWidth, n] with length keyBlockStride(n). n divides kPanelMaxRows and is at least half of
  /// it.
  float* keys;
  /// V of a tile as f32: blocks of `n` columns, each [tileKeys, n] with length valueBlockStride(n).
  float* values;
  int64_t keyStride;
  int64_t keyBlockStride(int64_t n) const;
  int64_t valueBlockStride(int64_t n) const;

  float* scores;     ///< [tileKeys, lanes] of one panel; weights after the softmax step
  float* bias;       ///< [tileKeys, lanes] of one panel: the mask
  float* maskRows;   ///< [lanes, tileKeys] of one panel
  float* correction; ///< [lanes] of one panel: correction of earlier weights for the new maximum
  float* rows;       ///< [kAttentionMaxLanes, rowStride]
  int64_t rowStride; ///< at least keyWidth, valueWidth and tileKeys

private:
  int64_t query(int64_t lane) const { return firstQuery + (lane < queries ? lane : queries - 1); }

  int64_t firstQuery;
};

} // namespace kvopt::simd
