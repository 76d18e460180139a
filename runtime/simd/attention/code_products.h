// Dot products of f32 rows with rows of int8 codes in integer arithmetic, if the CPU multiplies
// bytes: faster than multiply-adds, and just as exact.
#pragma once

#include "runtime/simd/attention/attention_block.h"
#include "runtime/simd/attention/read_ahead.h"

#include <cstddef>
#include <cstdint>

namespace kvopt::simd {

/// Whether this CPU multiplies bytes (AVX-512 VNNI).
bool hasByteProducts();

/// Maximum width of rows; longer sums might not fit into 32 bits.
inline constexpr int64_t mostCodeColumns = 1024;

/// f32 rows, each as integer multiples of its own step:
///   x = step (d0 + 256 d1 + 256^2 d2) + e, with digits -128 <= d <= 127
/// and |e| <= 3/4 step, step = max |x| / 8355000: |e| < 1.51 * 2^-24 max |x|.
struct QueryDigits {
  /// Number of 32-bit words for a row.
  static int64_t words(int64_t width) { return 3 * ((width + 3) / 4) + 5; }

  int32_t* memory; ///< words(width) for each row; null if unused
  int64_t width;   ///< at most mostCodeColumns
  int64_t rows;
};

/// Writes one row, whose vectors of 16 floats have the distance `distance` in floats; a partial
/// last vector is right-aligned in 16. Returns false for rows with infinities or NaN, which cannot
/// be represented. Requires hasByteProducts().
bool writeDigits(const float* values, int64_t distance, const QueryDigits& digits, int64_t row);

/// Keys of one head as rows of codes, with the distance `stride` in bytes.
struct CodeKeys {
  const int8_t* base;
  int64_t stride;
  /// Whether they are rows of four-bit codes (support/four_bit_row.h), in whole groups of 32
  /// columns; then products of codes with multipliers are multiplied.
  bool haveFourBits = false;
};

/// Products of the keys `range`, which are all in the tile of kAttentionTileKeys keys at `tile`,
/// with all rows. Scores start at `scores`, with kAttentionTileKeys for each row. Up to 15 scores
/// before and after those of the range are overwritten with others of the range; no other keys are
/// read. Prefetches the next keys meanwhile. The error of a product consists of the effect of its
/// row's e and three roundings. Requires hasByteProducts().
void scoreCodes(const CodeKeys& keys, int64_t tile, KeyRange range, const QueryDigits& digits,
                ReadAhead& ahead, float* scores);

} // namespace kvopt::simd
