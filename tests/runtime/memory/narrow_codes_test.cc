// Every code of the narrow floating-point types, rounding and overflow, and small integers.
#include "runtime/memory/narrow_codes.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();
constexpr float notANumber = std::numeric_limits<float>::quiet_NaN();

constexpr ElementType signedTypes[] = {ElementType::Float8E4M3FN, ElementType::Float8E4M3FNUZ,
                                       ElementType::Float8E5M2, ElementType::Float8E5M2FNUZ,
                                       ElementType::Float4E2M1};

uint8_t code(ElementType element, float value, bool saturate = true) {
  return codeOfNumber(element, value, {saturate, ScaleRounding::up});
}

TEST(NarrowCodes, EveryFiniteNumberIsItsOwnCode) {
  for (ElementType element : signedTypes) {
    const int count = element == ElementType::Float4E2M1 ? 16 : 256;
    int finite = 0;
    for (int bits = 0; bits < count; ++bits) {
      const float number = numbersOfCodes(element)[static_cast<size_t>(bits)];
      if (!std::isfinite(number))
        continue;
      ++finite;
      EXPECT_EQ(code(element, number), bits) << onnxName(element).str() << " " << number;
    }
    EXPECT_EQ(finite, element == ElementType::Float8E4M3FN ? 254
                      : element == ElementType::Float8E5M2 ? 248
                      : element == ElementType::Float4E2M1 ? 16
                                                           : 255);
  }
}

/// The published bits: least and largest numbers, and what is no number.
TEST(NarrowCodes, PublishedValues) {
  auto number = [](ElementType element, size_t bits) { return numbersOfCodes(element)[bits]; };
  EXPECT_EQ(number(ElementType::Float8E4M3FN, 0x7E), 448.0f);
  EXPECT_EQ(number(ElementType::Float8E4M3FN, 0x01), 0x1p-9f);
  EXPECT_TRUE(std::isnan(number(ElementType::Float8E4M3FN, 0xFF)));
  EXPECT_EQ(number(ElementType::Float8E5M2, 0x7B), 57344.0f);
  EXPECT_EQ(number(ElementType::Float8E5M2, 0x01), 0x1p-16f);
  EXPECT_EQ(number(ElementType::Float8E5M2, 0xFC), -infinite);
  EXPECT_TRUE(std::isnan(number(ElementType::Float8E5M2, 0x7D)));
  EXPECT_EQ(number(ElementType::Float8E4M3FNUZ, 0x7F), 240.0f);
  EXPECT_EQ(number(ElementType::Float8E4M3FNUZ, 0x01), 0x1p-10f);
  EXPECT_TRUE(std::isnan(number(ElementType::Float8E4M3FNUZ, 0x80)));
  EXPECT_EQ(number(ElementType::Float8E5M2FNUZ, 0x7F), 57344.0f);
  EXPECT_EQ(number(ElementType::Float8E5M2FNUZ, 0x01), 0x1p-17f);
  EXPECT_TRUE(std::isnan(number(ElementType::Float8E5M2FNUZ, 0x80)));
  const float float4[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (size_t bits = 0; bits < 8; ++bits) {
    EXPECT_EQ(number(ElementType::Float4E2M1, bits), float4[bits]);
    EXPECT_EQ(number(ElementType::Float4E2M1, bits + 8), -float4[bits]);
  }
  EXPECT_EQ(number(float8E8M0Type, 0), 0x1p-127f);
  EXPECT_EQ(number(float8E8M0Type, 0xFE), 0x1p127f);
  EXPECT_TRUE(std::isnan(number(float8E8M0Type, 0xFF)));
}

/// Against the nearest of all numbers, found by trying each: halves to the even code.
TEST(NarrowCodes, RoundsToTheNearest) {
  for (ElementType element : signedTypes) {
    const std::array<float, 256>& numbers = numbersOfCodes(element);
    const size_t count = element == ElementType::Float4E2M1 ? 8 : 128;
    for (size_t low = 0; low + 1 < count; ++low) {
      const float a = numbers[low];
      const float b = numbers[low + 1];
      if (!std::isfinite(a) || !std::isfinite(b))
        continue;
      const float middle = (a + b) / 2;
      EXPECT_EQ(code(element, middle), low % 2 == 0 ? low : low + 1) << onnxName(element).str();
      EXPECT_EQ(code(element, std::nextafter(middle, a)), low);
      EXPECT_EQ(code(element, std::nextafter(middle, b)), low + 1);
    }
  }
}

TEST(NarrowCodes, OverflowAndNan) {
  struct Row {
    ElementType element;
    uint8_t most, overflow, infinity, nan;
  };
  for (const Row& row : {Row{ElementType::Float8E4M3FN, 0x7E, 0x7F, 0x7F, 0x7F},
                         Row{ElementType::Float8E4M3FNUZ, 0x7F, 0x80, 0x80, 0x80},
                         Row{ElementType::Float8E5M2, 0x7B, 0x7C, 0x7C, 0x7F},
                         Row{ElementType::Float8E5M2FNUZ, 0x7F, 0x80, 0x80, 0x80}}) {
    SCOPED_TRACE(onnxName(row.element).str());
    const bool unsignedZero = row.overflow == 0x80;
    for (float value : {1e6f, infinite}) {
      EXPECT_EQ(code(row.element, value), row.most);
      EXPECT_EQ(code(row.element, -value), row.most | 0x80);
      EXPECT_EQ(code(row.element, value, false), value > 1e6f ? row.infinity : row.overflow);
      EXPECT_EQ(code(row.element, -value, false), unsignedZero ? 0x80 : row.infinity | 0x80);
    }
    EXPECT_EQ(code(row.element, notANumber), row.nan);
    EXPECT_EQ(code(row.element, -0.0f), unsignedZero ? 0 : 0x80);
    EXPECT_EQ(code(row.element, -1e-30f), unsignedZero ? 0 : 0x80);
  }
  for (bool saturate : {false, true}) {
    EXPECT_EQ(code(ElementType::Float4E2M1, 100, saturate), 7);
    EXPECT_EQ(code(ElementType::Float4E2M1, -infinite, saturate), 15);
    EXPECT_EQ(code(ElementType::Float4E2M1, notANumber, saturate), 7);
  }
}

TEST(NarrowCodes, PowersOfTwo) {
  auto scale = [](float value, ScaleRounding rounding, bool saturate = true) {
    return codeOfNumber(float8E8M0Type, value, {saturate, rounding});
  };
  EXPECT_EQ(scale(1, ScaleRounding::up), 127);
  EXPECT_EQ(scale(1.01f, ScaleRounding::up), 128);
  EXPECT_EQ(scale(1.99f, ScaleRounding::down), 127);
  EXPECT_EQ(scale(1.49f, ScaleRounding::nearest), 127);
  EXPECT_EQ(scale(1.5f, ScaleRounding::nearest), 128);
  EXPECT_EQ(scale(0, ScaleRounding::up), 0);
  EXPECT_EQ(scale(0, ScaleRounding::nearest, false), 0xFF);
  EXPECT_EQ(scale(infinite, ScaleRounding::up), 0xFE);
  EXPECT_EQ(scale(infinite, ScaleRounding::up, false), 0xFF);
  EXPECT_EQ(scale(3e38f, ScaleRounding::up), 0xFE);
  EXPECT_EQ(scale(3e38f, ScaleRounding::up, false), 0xFF);
  EXPECT_EQ(scale(1e-45f, ScaleRounding::down), 0);
  EXPECT_EQ(scale(1e-45f, ScaleRounding::down, false), 0xFF);
  EXPECT_EQ(scale(notANumber, ScaleRounding::up), 0xFF);
  EXPECT_EQ(scale(-1, ScaleRounding::up), 0xFF);
  EXPECT_EQ(scaleRoundingFromName("sideways"), std::nullopt);
}

TEST(NarrowCodes, SmallIntegersWrap) {
  const SmallRange int4 = *smallRangeOf(ElementType::Int4);
  const SmallRange uint2 = *smallRangeOf(uint2Type);
  EXPECT_EQ(wrappedInto(int4, 7), 7);
  EXPECT_EQ(wrappedInto(int4, 8), -8);
  EXPECT_EQ(wrappedInto(int4, -9), 7);
  EXPECT_EQ(wrappedInto(uint2, 5), 1);
  EXPECT_EQ(wrappedInto(uint2, -1), 3);
  EXPECT_FALSE(smallRangeOf(ElementType::Int8));
  EXPECT_EQ(inMemoryAs(int2Type), ElementType::Int8);
  EXPECT_EQ(inMemoryAs(ElementType::UInt4), ElementType::UInt8);
  EXPECT_EQ(inMemoryAs(ElementType::Float), ElementType::Float);
}

} // namespace
} // namespace kvopt
