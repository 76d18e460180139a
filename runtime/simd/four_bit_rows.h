// Rows of four-bit codes, as ai.kvopt::InPlaceQuantizedKvSdpa defines them.
#pragma once

#include "runtime/simd/float_storage.h"
#include "support/four_bit_row.h"

#include <cstddef>
#include <cstdint>

namespace kvopt::simd {

/// Writes FourBitRow::bytes() bytes and returns the scale:
///
///   scale = max |row| / 126,   m = max |group| / (7 scale), rounded up, within [1, 18]
///   codes[d] = row[d] / (scale m) to the nearest integer, ties to even, within [-7, 7]
///
/// in f32, with each operation rounded once. A row with scale 0 has codes 0 and multipliers 1. So
/// does a row with a NaN or an infinity, whose scale is NaN.
float quantizeFourBitRow(const void* row, FloatStorage storage, int64_t columns, uint8_t* packed);

/// Rows of `columns` numbers, with the distance `stride` in bytes.
struct FourBitRows {
  const std::byte* first;
  int64_t stride;
  int64_t columns;
};

/// Writes the products of codes and multipliers of `count` rows, `columns` for each: bytes that
/// still have to be multiplied by the rows' scales.
void unpackFourBitRows(const FourBitRows& rows, int64_t count, int8_t* products);

} // namespace kvopt::simd
