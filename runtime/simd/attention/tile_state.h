// TileState: the running state of attention to keys in tiles, as ai.kvopt::AttentionTile defines it
// (ir/ops/kvopt/attention_tile.cc).
#pragma once

#include "runtime/simd/float_storage.h"

#include <cstddef>
#include <cstdint>

namespace kvopt::simd {

/// State of all rows. A row of f16 has a maximum of two numbers, whose sum it is.
struct TileState {
  FloatStorage storage = FloatStorage::f32; ///< f32 or f16
  std::byte* output = nullptr;              ///< [rows,Dv]
  std::byte* maximum = nullptr;             ///< [rows,1], in f16 [rows,2]
  std::byte* sum = nullptr;                 ///< [rows,1]: 1/64 of the sum of weights
};

/// Attention of one row to the keys of a tile.
struct TileRow {
  const float* output = nullptr; ///< weighted mean of the values
  float maximum = 0;             ///< largest score
  float sum = 0;                 ///< sum of exp(score - maximum)
};

/// Lowest score of a key that is not hidden, for a state of this storage.
float lowestScoreOf(FloatStorage storage);

/// Writes row `row` of `after`: that of `before` with the tile. Both states may be the same memory.
void mergeTileRow(const TileRow& tile, const TileState& before, const TileState& after, int64_t row,
                  int64_t width);

} // namespace kvopt::simd
