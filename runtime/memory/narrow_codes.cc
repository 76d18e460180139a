// Encoding and decoding of narrow floating-point numbers.
#include "runtime/memory/narrow_codes.h"

#include "llvm/ADT/StringSwitch.h"

#include <cmath>
#include <limits>

namespace kvopt::runtime {
using namespace ir;

namespace {

constexpr float notANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite = std::numeric_limits<float>::infinity();

/// Format with a sign bit, an exponent and `mantissa` bits.
struct Format {
  int mantissa;
  int bias;
  int most; ///< code of the largest finite number
  int sign; ///< sign bit
  /// Whether code 0x80 is the only NaN, and there is no negative zero.
  bool isUnsignedZero = false;
  bool hasInfinity = false; ///< code `most` + 1
  bool hasNan = true;       ///< codes after `most`
};

std::optional<Format> formatOf(ElementType element) {
  switch (element) {
  case ElementType::Float8E4M3FN:
    return Format{3, 7, 0x7E, 0x80};
  case ElementType::Float8E4M3FNUZ:
    return Format{3, 8, 0x7F, 0x80, true};
  case ElementType::Float8E5M2:
    return Format{2, 15, 0x7B, 0x80, false, true};
  case ElementType::Float8E5M2FNUZ:
    return Format{2, 16, 0x7F, 0x80, true};
  case ElementType::Float4E2M1:
    return Format{1, 1, 0x7, 0x8, false, false, false};
  default:
    return std::nullopt;
  }
}

float decoded(const Format& format, int code) {
  const int magnitude = code & (format.sign - 1);
  const bool isNegative = (code & format.sign) != 0;
  if (format.isUnsignedZero && isNegative && magnitude == 0)
    return notANumber;
  if (magnitude > format.most)
    return !format.hasInfinity || magnitude != format.most + 1 ? notANumber
           : isNegative                                        ? -infinite
                                                               : infinite;
  const int unit = 1 << format.mantissa;
  const int exponent = magnitude / unit;
  const int significand = exponent == 0 ? magnitude : unit + magnitude % unit;
  const float value = std::ldexp(static_cast<float>(significand),
                                 std::max(exponent, 1) - format.bias - format.mantissa);
  return isNegative ? -value : value;
}

float decodedScale(int code) { return code == 0xFF ? notANumber : std::ldexp(1.0f, code - 127); }

uint8_t encoded(const Format& format, float value, bool saturate) {
  const int sign = std::signbit(value) ? format.sign : 0;
  const int nan = format.isUnsignedZero ? 0x80 : sign | 0x7F;
  if (std::isnan(value))
    return static_cast<uint8_t>(format.hasNan ? nan : format.most);
  const int beyond = saturate || !format.hasNan ? sign | format.most
                     : format.hasInfinity       ? sign | (format.most + 1)
                                                : nan;
  if (std::isinf(value))
    return static_cast<uint8_t>(beyond);
  if (value == 0.0f)
    return static_cast<uint8_t>(format.isUnsignedZero ? 0 : sign);
  // In units in the last place: the hidden bit of a normal number increments the exponent.
  const int exponent = std::max(std::ilogb(value), 1 - format.bias);
  const auto units = static_cast<int>(std::nearbyint(
      std::ldexp(static_cast<double>(std::fabs(value)), format.mantissa - exponent)));
  const int magnitude = ((exponent + format.bias - 1) << format.mantissa) + units;
  if (magnitude > format.most)
    return static_cast<uint8_t>(beyond);
  return static_cast<uint8_t>(magnitude == 0 && format.isUnsignedZero ? 0 : sign | magnitude);
}

uint8_t encodedScale(float value, CodeRounding rounding) {
  constexpr uint8_t nan = 0xFF;
  constexpr uint8_t most = 0xFE;
  if (std::isnan(value) || value < 0.0f)
    return nan;
  if (std::isinf(value))
    return rounding.saturate ? most : nan;
  if (value == 0.0f)
    return rounding.saturate ? 0 : nan;
  int exponent = std::ilogb(value);
  const float fraction = std::ldexp(value, -exponent);
  if (rounding.scale == ScaleRounding::up
          ? fraction > 1.0f
          : rounding.scale == ScaleRounding::nearest && fraction >= 1.5f)
    ++exponent;
  if (exponent > 127)
    return rounding.saturate ? most : nan;
  if (exponent < -127)
    return rounding.saturate ? 0 : nan;
  return static_cast<uint8_t>(exponent + 127);
}

template <ElementType element> const std::array<float, 256>& table() {
  static const std::array<float, 256> numbers = [] {
    std::array<float, 256> filled{};
    const std::optional<Format> format = formatOf(element);
    for (int code = 0; code < 256; ++code)
      filled[static_cast<size_t>(code)] =
          format ? decoded(*format, element == ElementType::Float4E2M1 ? code & 0xF : code)
                 : decodedScale(code);
    return filled;
  }();
  return numbers;
}

} // namespace

bool isFloatCode(ElementType element) {
  return element == float8E8M0Type || formatOf(element).has_value();
}

const std::array<float, 256>& numbersOfCodes(ElementType element) {
  switch (element) {
  case ElementType::Float8E4M3FN:
    return table<ElementType::Float8E4M3FN>();
  case ElementType::Float8E4M3FNUZ:
    return table<ElementType::Float8E4M3FNUZ>();
  case ElementType::Float8E5M2:
    return table<ElementType::Float8E5M2>();
  case ElementType::Float8E5M2FNUZ:
    return table<ElementType::Float8E5M2FNUZ>();
  case ElementType::Float4E2M1:
    return table<ElementType::Float4E2M1>();
  default:
    assert(element == float8E8M0Type);
    return table<float8E8M0Type>();
  }
}

std::optional<ScaleRounding> scaleRoundingFromName(llvm::StringRef name) {
  return llvm::StringSwitch<std::optional<ScaleRounding>>(name)
      .Case("up", ScaleRounding::up)
      .Case("down", ScaleRounding::down)
      .Case("nearest", ScaleRounding::nearest)
      .Default(std::nullopt);
}

uint8_t codeOfNumber(ElementType element, float value, CodeRounding rounding) {
  const std::optional<Format> format = formatOf(element);
  return format ? encoded(*format, value, rounding.saturate) : encodedScale(value, rounding);
}

std::optional<SmallRange> smallRangeOf(ElementType element) {
  if (element == ElementType::Int4)
    return SmallRange{-8, 7};
  if (element == ElementType::UInt4)
    return SmallRange{0, 15};
  if (element == int2Type)
    return SmallRange{-2, 1};
  if (element == uint2Type)
    return SmallRange{0, 3};
  return std::nullopt;
}

int8_t wrappedInto(SmallRange range, int64_t value) {
  const int64_t count = range.most - range.least + 1;
  const int64_t bits = value & (count - 1);
  return static_cast<int8_t>(bits > range.most ? bits - count : bits);
}

ElementType inMemoryAs(ElementType element) {
  const std::optional<SmallRange> range = smallRangeOf(element);
  return !range ? element : range->least < 0 ? ElementType::Int8 : ElementType::UInt8;
}

} // namespace kvopt::runtime
