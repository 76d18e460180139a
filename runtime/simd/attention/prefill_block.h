// One unit of work of the prefill kernel: which queries and keys it covers, and where its scratch
// lies. Plain C++; the vector code in attention/prefill.cc computes with it.
#pragma once

#include "runtime/simd/attention/attention_block.h"

namespace kvopt::simd {

/// Left operands of a product are taken this many rows at a time, at most.
inline constexpr int64_t kPanelMaxRows = 8;
/// Vectors of queries that a product takes side by side, at most.
inline constexpr int64_t kPanelMaxVectors = 3;
inline constexpr int64_t kPanelMaxLanes = kPanelMaxVectors * kAttentionMaxLanes;

/// The number of blocks that a view divides into.
int64_t prefillBlocks(const AttentionView& view);
/// Bytes of scratch of one block; independent of T.
size_t prefillBlockBytes(const AttentionView& view);

/// A block of queries of one batch row and key/value head. The query rows times the heads of the
/// group are numbered row by row: a query is row * group + head in group. A block takes any range
/// of them: a row's heads may be in two blocks.
///
/// Queries lie in lanes. A panel is up to kPanelMaxVectors vectors of queries; a matrix [n,
/// queries] is stored panel by panel, each [n, lanes of the panel]. Lanes behind the last query
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
  int64_t queries; ///< of this block
  int64_t total;   ///< T of this batch row
  /// Keys are taken in tiles that start at multiples of this: the order of every sum is a property
  /// of the key's position alone.
  int64_t tileKeys;

  float* packedQueries; ///< [keyWidth, queries]
  float* output;        ///< [valueWidth, queries], unnormalized; width rounded up to kPanelMaxRows
  float* maximum;       ///< [queries], finite
  float* sum;           ///< [queries]
  int64_t* begin;       ///< [queries]: the keys that causal and window leave to each
  int64_t* end;

  /// K of a tile as f32: [tileKeys, keyStride]. Or, from a transposed K, blocks of `n` keys, each
  /// [keyWidth, n] and keyBlockStride(n) long. n divides kPanelMaxRows and is at least half of it.
  float* keys;
  /// V of a tile as f32: blocks of `n` columns, each [tileKeys, n] and valueBlockStride(n) long.
  float* values;
  int64_t keyStride;
  int64_t keyBlockStride(int64_t n) const;
  int64_t valueBlockStride(int64_t n) const;

  float* scores;     ///< [tileKeys, lanes] of one panel; after the softmax step, weights
  float* bias;       ///< [tileKeys, lanes] of one panel: the mask
  float* maskRows;   ///< [lanes, tileKeys] of one panel
  float* correction; ///< [lanes] of one panel: what the new maximum does to older weights
  float* rows;       ///< [kAttentionMaxLanes, rowStride]
  int64_t rowStride; ///< at least keyWidth, valueWidth and tileKeys

private:
  int64_t query(int64_t lane) const { return firstQuery + (lane < queries ? lane : queries - 1); }

  int64_t firstQuery;
};

} // namespace kvopt::simd
