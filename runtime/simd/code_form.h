// CodeForm: how rows of quantized caches are stored as codes.
#pragma once

#include "runtime/simd/four_bit_rows.h"

namespace kvopt::simd {

enum class CodeForm : uint8_t {
  bytes,       ///< int8, one code per column
  fourBitRows, ///< four-bit codes in groups with multipliers (support/four_bit_row.h)
  /// Four-bit codes alone, two in a byte: byte i has the code of column 2 i in its lower and that
  /// of column 2 i + 1 in its upper four bits, stored as nibbleOffset more than the code, which is
  /// -8 to 7.
  nibbles,
};

inline constexpr int nibbleOffset = 8;

/// The bytes of a row of `columns` columns.
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

/// Writes the codes of `count` rows, `columns` for each. A row's bytes behind its last column are
/// not looked at, and neither are the upper bits of the byte that an odd column ends in.
void unpackNibbleRows(const FourBitRows& rows, int64_t count, int8_t* codes);

/// Writes what `count` rows of a form other than bytes stand for before they are scaled, `columns`
/// bytes for each.
void unpackCodeRows(CodeForm form, const FourBitRows& rows, int64_t count, int8_t* codes);

} // namespace kvopt::simd
