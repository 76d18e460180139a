// Layout of a row of numbers that is stored as four-bit codes.
#pragma once

#include <cstdint>

namespace kvopt {

/// Layout in bytes of a row of `columns` numbers, as ai.kvopt::InPlaceQuantizedKvSdpa defines it.
/// Columns form groups of equal size, each with its own multiplier. In a group of 2n columns, byte
/// i (i < n) stores the code of column i in its lower four bits and that of column n + i in its
/// upper four bits; the multiplier follows these bytes. Padding columns after the last column of
/// the row have the code of zero.
struct FourBitRow {
  static constexpr int64_t mostGroupColumns = 32;
  /// Offset that is added to a code (-7 to 7) when it is stored.
  static constexpr int codeOffset = 8;
  static constexpr int largestCode = 7;
  static constexpr int largestMultiplier = 18;

  int64_t columns;

  constexpr int64_t groups() const { return (columns + mostGroupColumns - 1) / mostGroupColumns; }
  /// The number n: half of the columns of a group.
  constexpr int64_t halfGroup() const {
    return columns == 0 ? 0 : ((columns + groups() - 1) / groups() + 1) / 2;
  }
  constexpr int64_t groupBytes() const { return halfGroup() + 1; }
  constexpr int64_t bytes() const { return groups() * groupBytes(); }
};

} // namespace kvopt
