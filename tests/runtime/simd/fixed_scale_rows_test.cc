// Codes with fixed scales: rounding, saturation, padding, and products with scales.
#include "runtime/simd/fixed_scale_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace kvopt::simd {
namespace {

constexpr float columnScales[] = {9.0f, 9.0f, 9.0f, 0.5f, 0.0f, 2.0f}; // of heads 0 and 1
constexpr FixedScales perColumn{columnScales, true, 3};

TEST(FixedScaleRows, BytesRoundToEvenAndSaturate) {
  const float scale = 0.5f;
  const FixedScales scales{&scale, false, 6};
  const float row[] = {0.25f,   0.75f,    -0.25f,
                       1000.0f, -1000.0f, std::numeric_limits<float>::quiet_NaN()};
  int8_t codes[6] = {};
  writeFixedScaleRow(row, FloatStorage::f32, scales, 0, CodeForm::bytes,
                     reinterpret_cast<std::byte*>(codes));
  EXPECT_EQ(std::vector<int>(codes, codes + 6), (std::vector<int>{0, 2, 0, 127, -128, 127}));
}

TEST(FixedScaleRows, ColumnsHaveScalesOfTheirHead) {
  const float row[] = {3.0f, 3.0f, 3.0f};
  int8_t codes[3] = {};
  writeFixedScaleRow(row, FloatStorage::f32, perColumn, 1, CodeForm::bytes,
                     reinterpret_cast<std::byte*>(codes));
  // A scale of 0 counts as 1.
  EXPECT_EQ(std::vector<int>(codes, codes + 3), (std::vector<int>{6, 3, 2}));
}

TEST(FixedScaleRows, NibblesHaveALowerAndAnUpperColumn) {
  const float scale = 1.0f;
  const FixedScales scales{&scale, false, 3};
  const float row[] = {-9.0f, 5.0f, 7.4f};
  uint8_t packed[2] = {};
  writeFixedScaleRow(row, FloatStorage::f32, scales, 0, CodeForm::nibbles,
                     reinterpret_cast<std::byte*>(packed));
  EXPECT_EQ(packed[0], (-8 + nibbleOffset) | (5 + nibbleOffset) << 4);
  EXPECT_EQ(packed[1], (7 + nibbleOffset) | nibbleOffset << 4) << "the padding column is 0";
}

TEST(FixedScaleRows, ProductsAreRelativeToTheCommonScale) {
  const float common = commonScale(perColumn, 2);
  EXPECT_EQ(common, 16.0f);
  const float row[] = {4.0f, 4.0f, 4.0f};
  float products[3] = {};
  multiplyByScales(row, FloatStorage::f32, perColumn, 1, common, products);
  EXPECT_EQ(products[0], 0.125f);
  EXPECT_EQ(products[1], 0.0f);
  EXPECT_EQ(products[2], 0.5f);
  const float zero = 0.0f;
  EXPECT_EQ(commonScale({&zero, true, 1}, 1), 1.0f);
}

} // namespace
} // namespace kvopt::simd
