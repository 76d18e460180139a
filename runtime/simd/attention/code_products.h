// Dot products of f32 rows with rows of int8 codes, in whole numbers, where the CPU multiplies
// bytes: faster than multiply-adds, and as exact.
#pragma once

#include "runtime/simd/attention/attention_block.h"
#include "runtime/simd/attention/read_ahead.h"

#include <cstddef>
#include <cstdint>

namespace kvopt::simd {

/// Whether this CPU does (AVX-512 VNNI).
bool hasByteProducts();

/// Rows of this width and less: sums of more might not fit in 32 bits.
inline constexpr int64_t mostCodeColumns = 1024;

/// f32 rows, each as whole numbers that count a step of its own:
///   x = step (d0 + 256 d1 + 256^2 d2) + e, with digits -128 <= d <= 127
/// and |e| <= 3/4 step, step = max |x| / 8355000: |e| < 1.51 * 2^-24 max |x|.
struct QueryDigits {
  /// Numbers of 32 bits for a row.
  static int64_t words(int64_t width) { return 3 * ((width + 3) / 4) + 5; }

  int32_t* memory; ///< words(width) for each row; null: not in use
  int64_t width;   ///< no more than mostCodeColumns
  int64_t rows;
};

/// Writes one row, whose vectors of 16 floats lie `distance` floats apart, the last right-aligned
/// in 16 if it is not whole. Returns false for rows with infinities or NaN, which cannot be written
/// so. Requires hasByteProducts().
bool writeDigits(const float* values, int64_t distance, const QueryDigits& digits, int64_t row);

/// The keys of one head as rows of codes, `stride` bytes apart.
struct CodeKeys {
  const int8_t* base;
  int64_t stride;
  /// They are rows of four-bit codes (support/four_bit_row.h), of whole groups of 32 columns; what
  /// is multiplied are their products with the multipliers.
  bool haveFourBits = false;
};

/// The products of the keys `range`, all of which lie in the tile of kAttentionTileKeys keys from
/// `tile` on, with all rows, whose scores lie one after the other from `scores` on,
/// kAttentionTileKeys for each. Up to 15 scores before and behind those of the range are
/// overwritten with others of the range; no other key is read. Asks for what comes next meanwhile.
/// A product is wrong by what its row's e make of it, and three roundings. Requires
/// hasByteProducts().
void scoreCodes(const CodeKeys& keys, int64_t tile, KeyRange range, const QueryDigits& digits,
                ReadAhead& ahead, float* scores);

} // namespace kvopt::simd
