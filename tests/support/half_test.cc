// Conversions between f32 and 16-bit floats, against the definition of the formats.
#include "support/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace kvopt {
namespace {

static_assert(f16ToFloat(0x3C00) == 1.0f);
static_assert(floatToF16(65504.0f) == 0x7BFF);
static_assert(bf16ToFloat(0xBF80) == -1.0f);
static_assert(floatToBf16(1.0f) == 0x3F80);

/// The value that the fields of the format spell, for finite bit patterns.
double f16Definition(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

TEST(Half, EveryF16HasTheValueOfItsFields) {
  for (uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    const float value = f16ToFloat(bits);
    EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0);
    if ((bits & 0x7C00) != 0x7C00)
      EXPECT_EQ(double{value}, f16Definition(bits)) << pattern;
    else if (bits & 0x3FF)
      EXPECT_TRUE(std::isnan(value)) << pattern;
    else
      EXPECT_TRUE(std::isinf(value)) << pattern;
  }
}

TEST(Half, EveryPatternSurvivesTheRoundTrip) {
  for (uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    if (std::isnan(f16ToFloat(bits)))
      EXPECT_EQ(floatToF16(f16ToFloat(bits)), bits | 0x0200) << pattern;
    else
      EXPECT_EQ(floatToF16(f16ToFloat(bits)), bits) << pattern;
    if (std::isnan(bf16ToFloat(bits)))
      EXPECT_EQ(floatToBf16(bf16ToFloat(bits)), bits | 0x0040) << pattern;
    else
      EXPECT_EQ(floatToBf16(bf16ToFloat(bits)), bits) << pattern;
  }
}

/// Between each pair of neighbors: the midpoint goes to the even one, anything else to the nearer.
TEST(Half, RoundsToNearestEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (uint16_t bits = 0; bits < 0x7C00; ++bits) {
    const auto next = static_cast<uint16_t>(bits + 1);
    const float low = f16ToFloat(bits);
    const float high = next == 0x7C00 ? 65536.0f : f16ToFloat(next);
    const float middle = low + (high - low) / 2;
    const uint16_t even = bits & 1 ? next : bits;
    EXPECT_EQ(floatToF16(middle), even) << bits;
    EXPECT_EQ(floatToF16(-middle), even | 0x8000) << bits;
    EXPECT_EQ(floatToF16(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(floatToF16(std::nextafter(middle, infinity)), next);
  }
  for (uint16_t bits = 0; bits < 0x7F7F; ++bits) {
    const auto next = static_cast<uint16_t>(bits + 1);
    const float middle = std::bit_cast<float>(uint32_t{bits} << 16 | 0x8000u);
    EXPECT_EQ(floatToBf16(middle), bits & 1 ? next : bits) << bits;
    EXPECT_EQ(floatToBf16(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(floatToBf16(std::nextafter(middle, infinity)), next);
  }
}

TEST(Half, OverflowIsInfinityAndTinyIsZero) {
  EXPECT_EQ(floatToF16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(floatToF16(65520.0f), 0x7C00);
  EXPECT_EQ(floatToF16(-1e30f), 0xFC00);
  EXPECT_EQ(floatToF16(0x1p-25f), 0);
  EXPECT_EQ(floatToF16(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(floatToF16(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(floatToBf16(std::numeric_limits<float>::max()), 0x7F80);
}

} // namespace
} // namespace kvopt
