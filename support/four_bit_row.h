// How a row of numbers lies in memory as codes of four bits.
#pragma once

#include <cstdint>

namespace kvopt {

/// The bytes of a row of `columns` numbers, as ai.kvopt::InPlaceQuantizedKvSdpa defines them: equal
/// groups of columns, each with a multiplier of its own. Of a group of 2 n columns byte i, for i <
/// n, has the code of column i in its lower and that of column n + i in its upper four bits; the
/// multiplier is behind them. Columns behind the last one of the row have the code of zero.
struct FourBitRow {
  static constexpr int64_t mostGroupColumns = 32;
  /// What a code is stored as is this much more than the code, which is -7 to 7.
  static constexpr int codeOffset = 8;
  static constexpr int largestCode = 7;
  static constexpr int largestMultiplier = 18;

  int64_t columns;

  constexpr int64_t groups() const { return (columns + mostGroupColumns - 1) / mostGroupColumns; }
  /// n.
  constexpr int64_t halfGroup() const {
    return columns == 0 ? 0 : ((columns + groups() - 1) / groups() + 1) / 2;
  }
  constexpr int64_t groupBytes() const { return halfGroup() + 1; }
  constexpr int64_t bytes() const { return groups() * groupBytes(); }
};

} // namespace kvopt
