// Rows of float8 (E4M3FN): a sign, four exponent bits and three mantissa bits for each number.
//
//   s = max_d |x[d]| / 448,   q[d] = the float8 nearest to x[d] / s, ties to an even mantissa;
//                                    it represents s q[d]
//
// In the tree this would be the file ir/rows/float8_rows.cc.
#include "ir/rows/row_code.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvopt::ir {

namespace {

constexpr float largestFloat8 = 448.0f;
constexpr int smallestExponent = -6;
constexpr int mantissaBits = 3;

/// Code of the nearest float8; that of 448 for larger numbers.
uint8_t codeOf(float number) {
  const float magnitude = std::fabs(number);
  const uint8_t sign = std::signbit(number) ? 0x80 : 0;
  if (magnitude == 0)
    return sign;
  const int exponent = std::max(std::ilogb(magnitude), smallestExponent);
  // With the leading bit, which numbers below the smallest exponent do not have.
  const int mantissa =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, mantissaBits - exponent)));
  const int code = ((exponent - smallestExponent) << mantissaBits) + mantissa;
  return static_cast<uint8_t>(sign | std::min(code, 0x7E));
}

float numberOf(uint8_t code) {
  const int exponent = (code >> mantissaBits) & 0xF;
  const int mantissa = code & 0x7;
  if (exponent == 0xF && mantissa == 0x7)
    return std::numeric_limits<float>::quiet_NaN();
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissaBits);
  const float magnitude = std::ldexp(static_cast<float>(whole),
                                     std::max(exponent, 1) - 1 + smallestExponent - mantissaBits);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

float encodeRow(const float* row, int64_t columns, std::byte* codes) {
  float largest = 0;
  bool hasNumbersOnly = true;
  for (int64_t i = 0; i < columns; ++i) {
    hasNumbersOnly &= std::isfinite(row[i]);
    largest = std::max(largest, std::fabs(row[i]));
  }
  std::fill_n(codes, columns, std::byte{0});
  if (!hasNumbersOnly)
    return std::numeric_limits<float>::quiet_NaN();
  const float scale = largest / largestFloat8;
  for (int64_t i = 0; i < columns; ++i)
    codes[i] = std::byte{codeOf(row[i] / (scale == 0 ? 1 : scale))};
  return scale;
}

void decodeRow(const std::byte* codes, int64_t columns, float* numbers) {
  for (int64_t i = 0; i < columns; ++i)
    numbers[i] = numberOf(static_cast<uint8_t>(codes[i]));
}

} // namespace

extern const RowCode float8Rows;
const RowCode float8Rows = {
    .word = "float8",
    .rows = "rows of float8",
    .element = ElementType::Float8E4M3FN,
    .largest = largestFloat8,
    .opset = 19, // Cast to float8
    .elements = nullptr,
    .constantsText = R"(
    largest_product = Constant <value_float = 448.0> ()
    not_a_number = Sub (infinity, infinity)
)",
    .columnsText = "",
    .writtenText = R"(
    {0}_quotients = Div ({0}_numbers, {0}_divisor)
    {0}_float8 = Cast <to = 17> ({0}_quotients)
    {0}_rounded = Cast <to = 1> ({0}_float8)
    {0}_code_new = Where ({0}_row_has_no_number, zero, {0}_rounded)
)",
    .readText = R"(
    {0}s = Mul ({0}_codes, {0}_scales)
)",
    .encode = encodeRow,
    .decode = decodeRow,
};

} // namespace kvopt::ir
