// CodeForm: storage format of codes in rows of quantized caches.
#pragma once

#include "runtime/simd/four_bit_rows.h"

namespace kvopt::simd {

enum class CodeForm : uint8_t {
  bytes,       ///< int8, one code per column
  fourBitRows, ///< four-bit codes in groups with multipliers (support/four_bit_row.h)
  /// Only four-bit codes, two per byte: byte i has the code of column 2 i in its lower and that of
  /// column 2 i + 1 in its upper four bits. The stored value is the code (-8 to 7) plus
  /// nibbleOffset.
  nibbles,
};

inline constexpr int nibbleOffset = 8;

/// Size of a row of `columns` columns in bytes.
constexpr int64_t codeRowBytes(CodeForm form, int64_t columns) {
  switch (form) {
  case CodeForm::bytes:
    return columns;
  case CodeForm::fourBitRows:
    return FourBitRow{columns}.bytes();
  case CodeForm::nibbles:
    return (columns + 1) / 2;
  }
  return columns;
}

/// Writes the codes of `count` rows, `columns` for each. Padding bytes after the last column, and
/// the upper bits of the byte in which an odd width ends, are ignored.
void unpackNibbleRows(const FourBitRows& rows, int64_t count, int8_t* codes);

/// Writes the unscaled values of `count` rows of a form other than bytes, `columns` bytes for each.
void unpackCodeRows(CodeForm form, const FourBitRows& rows, int64_t count, int8_t* codes);

} // namespace kvopt::simd
