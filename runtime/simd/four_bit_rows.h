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
///   codes[d] = row[d] / (scale m) to the nearest integer, halves to even, within [-7, 7]
///
/// in f32, each rounded once. A row whose scale is 0 has codes 0 and multipliers 1; one with a NaN
/// or an infinity as well, and the scale NaN.
float quantizeFourBitRow(const void* row, FloatStorage storage, int64_t columns, uint8_t* packed);

/// Rows of `columns` numbers, `stride` bytes apart.
struct FourBitRows {
  const std::byte* first;
  int64_t stride;
  int64_t columns;
};

/// Writes the products of codes and multipliers of `count` rows, `columns` for each: bytes that the
/// rows' scales make numbers of.
void unpackFourBitRows(const FourBitRows& rows, int64_t count, int8_t* products);

} // namespace kvopt::simd
