// Values of four-bit codes for each multiplier of their group: lookup tables for vectors.
#pragma once

#include "support/four_bit_row.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace kvopt::simd {

/// The sixteen products of a multiplier with all stored codes.
template <class Number> struct FourBitProducts {
  static constexpr int multipliers = FourBitRow::largestMultiplier + 1;

  /// Products for a multiplier as read from a cache, which may contain anything.
  const Number* of(uint8_t multiplier) const {
    return table[std::min<int>(multiplier, FourBitRow::largestMultiplier)];
  }

  alignas(64) Number table[multipliers][16];
};

/// `flipped` is added to each product without carry: 0x80 makes them unsigned bytes.
template <class Number> constexpr FourBitProducts<Number> makeFourBitProducts(int flipped = 0) {
  FourBitProducts<Number> products{};
  for (int multiplier = 0; multiplier < FourBitProducts<Number>::multipliers; ++multiplier)
    for (int stored = 0; stored < 16; ++stored) {
      // -8 is never written, but must not overflow.
      const int code = std::max(stored - FourBitRow::codeOffset, -FourBitRow::largestCode);
      products.table[multiplier][stored] = static_cast<Number>((code * multiplier) ^ flipped);
    }
  return products;
}

inline constexpr FourBitProducts<int8_t> fourBitCodes = makeFourBitProducts<int8_t>();
inline constexpr FourBitProducts<float> fourBitNumbers = makeFourBitProducts<float>();

} // namespace kvopt::simd
