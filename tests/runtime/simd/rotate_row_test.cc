// Rotation of rows against the formula, element by element.
#include "runtime/simd/rotate_row.h"

#include "support/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvopt::simd {
namespace {

constexpr float cosines[] = {0.5f, -0.25f, 1.0f};
constexpr float sines[] = {0.75f, 2.0f, 0.0f};

/// The formula of the header for element `at` of a row x.
float rotated(const std::vector<float>& x, int64_t at, const RotaryRow& angles) {
  if (at >= 2 * angles.half)
    return x[static_cast<size_t>(at)];
  const int64_t pair = angles.interleaved ? at / 2 : at % angles.half;
  const bool isSecond = angles.interleaved ? at % 2 == 1 : at >= angles.half;
  const auto first = static_cast<size_t>(angles.interleaved ? 2 * pair : pair);
  const size_t second = first + static_cast<size_t>(angles.interleaved ? 1 : angles.half);
  const float c = angles.cosine[pair], s = angles.sine[pair];
  return isSecond ? s * x[first] + c * x[second] : c * x[first] - s * x[second];
}

TEST(RotateRow, FollowsTheFormula) {
  std::vector<float> x;
  for (int i = 0; i < 9; ++i)
    x.push_back(static_cast<float>(i * i) - 11.5f);
  for (const bool interleaved : {false, true})
    for (int64_t half = 0; half <= 3; ++half)
      for (int64_t width = 2 * half; width <= 9; ++width) {
        const RotaryRow angles{cosines, sines, half, interleaved};
        std::vector<float> y(10, 77.0f);
        rotateRow(x.data(), y.data(), FloatStorage::f32, width, angles);
        for (int64_t i = 0; i < width; ++i)
          EXPECT_FLOAT_EQ(y[static_cast<size_t>(i)], rotated(x, i, angles));
        EXPECT_EQ(y[static_cast<size_t>(width)], 77.0f) << "written past the row";
      }
}

TEST(RotateRow, RoundsSixteenBitNumbersOnce) {
  const std::vector<float> x = {1.5f, -2.25f, 3.0f, 0.125f, 8.0f, -0.5f, 7.0f};
  const RotaryRow angles{cosines, sines, 3, false};
  std::vector<uint16_t> halves, brains, y(x.size());
  for (const float number : x) {
    halves.push_back(floatToF16(number));
    brains.push_back(floatToBf16(number));
  }
  rotateRow(halves.data(), y.data(), FloatStorage::f16, 7, angles);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(y[i], floatToF16(rotated(x, static_cast<int64_t>(i), angles)));
  rotateRow(brains.data(), y.data(), FloatStorage::bf16, 7, angles);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(y[i], floatToBf16(rotated(x, static_cast<int64_t>(i), angles)));
}

} // namespace
} // namespace kvopt::simd
