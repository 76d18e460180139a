// What codes of four bits stand for, by the multiplier of their group: tables that vectors look
// codes up in.
#pragma once

#include "support/four_bit_row.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace kvopt::simd {

/// The sixteen products of a multiplier with what a code may be stored as.
template <class Number> struct FourBitProducts {
  static constexpr int multipliers = FourBitRow::largestMultiplier + 1;

  /// Of a multiplier as it was read: a cache may hold anything.
  const Number* of(uint8_t multiplier) const {
    return table[std::min<int>(multiplier, FourBitRow::largestMultiplier)];
  }

  alignas(64) Number table[multipliers][16];
};

/// `flipped` is added to each product, without carrying: 0x80 makes bytes without a sign of them.
template <class Number> constexpr FourBitProducts<Number> makeFourBitProducts(int flipped = 0) {
  FourBitProducts<Number> products{};
  for (int multiplier = 0; multiplier < FourBitProducts<Number>::multipliers; ++multiplier)
    for (int stored = 0; stored < 16; ++stored) {
      // Nobody writes -8; it must not overflow all the same.
      const int code = std::max(stored - FourBitRow::codeOffset, -FourBitRow::largestCode);
      products.table[multiplier][stored] = static_cast<Number>((code * multiplier) ^ flipped);
    }
  return products;
}

inline constexpr FourBitProducts<int8_t> fourBitCodes = makeFourBitProducts<int8_t>();
inline constexpr FourBitProducts<float> fourBitNumbers = makeFourBitProducts<float>();

} // namespace kvopt::simd
