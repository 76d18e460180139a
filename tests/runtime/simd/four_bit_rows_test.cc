// Packing of rows as four-bit codes, and unpacking on every SIMD target, against the definition.
#include "runtime/simd/four_bit_rows.h"

#include "support/half.h"
#include "tests/runtime/simd/targets.h"

#include <cmath>
#include <limits>
#include <random>

namespace kvopt {
using namespace simd;

namespace {

constexpr float kLargestFloat = std::numeric_limits<float>::max();

struct FourBit {
  float scale;
  std::vector<uint8_t> packed;
  std::vector<int8_t> products;
};

FourBit packedRow(const void* row, FloatStorage storage, int64_t columns) {
  const auto bytes = static_cast<size_t>(FourBitRow{columns}.bytes());
  FourBit result;
  std::vector<uint8_t> packed(bytes + 2, 0xEE);
  result.scale = quantizeFourBitRow(row, storage, columns, packed.data() + 1);
  EXPECT_EQ(packed.front(), 0xEE);
  EXPECT_EQ(packed.back(), 0xEE);
  result.packed.assign(packed.begin() + 1, packed.end() - 1);
  std::vector<int8_t> products(static_cast<size_t>(columns) + 2, int8_t{99});
  unpackFourBitRows({reinterpret_cast<const std::byte*>(packed.data() + 1), 0, columns}, 1,
                    products.data() + 1);
  EXPECT_EQ(products.front(), 99);
  EXPECT_EQ(products.back(), 99);
  result.products.assign(products.begin() + 1, products.end() - 1);
  return result;
}

/// The products of codes and multipliers, column by column, as
/// ir/ops/kvopt/cache_operators.cc has them.
std::vector<int8_t> productsByDefinition(const std::vector<float>& row) {
  const FourBitRow form{static_cast<int64_t>(row.size())};
  std::vector<int8_t> products(row.size(), 0);
  float largest = 0;
  for (const float x : row) {
    if (!std::isfinite(x))
      return products;
    largest = std::max(largest, std::abs(x));
  }
  const float scale = largest / 126.0f == 0 ? 1.0f : largest / 126.0f;
  const auto group = static_cast<size_t>(2 * form.halfGroup());
  for (size_t first = 0; first < row.size(); first += group) {
    const size_t end = std::min(first + group, row.size());
    float ofGroup = 0;
    for (size_t d = first; d < end; ++d)
      ofGroup = std::max(ofGroup, std::abs(row[d]));
    const float multiplier = std::fmin(18.0f, std::fmax(1.0f, std::ceil(ofGroup / (scale * 7))));
    for (size_t d = first; d < end; ++d)
      products[d] = static_cast<int8_t>(
          multiplier *
          std::fmax(-7.0f, std::fmin(7.0f, std::nearbyint(row[d] / (scale * multiplier)))));
  }
  return products;
}

TEST(FourBitRow, GroupsAreEqualAndHoldAllColumns) {
  for (int64_t columns = 1; columns <= 600; ++columns) {
    const FourBitRow form{columns};
    EXPECT_LE(2 * form.halfGroup(), FourBitRow::mostGroupColumns);
    EXPECT_GE(2 * form.halfGroup() * form.groups(), columns);
    EXPECT_LT(2 * form.halfGroup() * (form.groups() - 1), columns);
    if (columns >= 4) {
      EXPECT_LT(form.bytes(), columns) << columns;
    }
  }
  EXPECT_EQ(FourBitRow{128}.bytes(), 68);
  EXPECT_EQ(FourBitRow{80}.bytes(), 45);
  EXPECT_EQ(FourBitRow{0}.bytes(), 0);
}

TEST(FourBitRows, EveryWidthAndStorage) {
  forEachSimdTarget([] {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (size_t width = 1; width <= 135; ++width)
      for (const float magnitude : {1.0f, 1e-6f, 1e4f}) {
        std::vector<float> row(width), fromF16, fromBf16;
        std::vector<uint16_t> f16, bf16;
        for (float& x : row) {
          x = magnitude * normal(random);
          f16.push_back(floatToF16(x));
          bf16.push_back(floatToBf16(x));
          fromF16.push_back(f16ToFloat(f16.back()));
          fromBf16.push_back(bf16ToFloat(bf16.back()));
        }
        SCOPED_TRACE(testing::Message() << "width " << width << " magnitude " << magnitude);
        const auto columns = static_cast<int64_t>(width);
        EXPECT_EQ(packedRow(row.data(), FloatStorage::f32, columns).products,
                  productsByDefinition(row));
        EXPECT_EQ(packedRow(f16.data(), FloatStorage::f16, columns).products,
                  productsByDefinition(fromF16));
        EXPECT_EQ(packedRow(bf16.data(), FloatStorage::bf16, columns).products,
                  productsByDefinition(fromBf16));
      }
  });
}

TEST(FourBitRows, ErrorIsHalfAStepOfTheGroup) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 100; ++round) {
    std::vector<float> row(96);
    for (size_t d = 0; d < row.size(); ++d)
      row[d] = normal(random) * (d < 32 ? 10.0f : 1.0f);
    const FourBit result = packedRow(row.data(), FloatStorage::f32, 96);
    for (size_t d = 0; d < row.size(); ++d) {
      const double step = double{result.scale} * result.packed[d / 32 * 17 + 16];
      ASSERT_LE(std::abs(double{row[d]} - double{result.scale} * result.products[d]),
                step * (0.5 + 8 * 0x1p-22));
    }
  }
}

TEST(FourBitRows, ZerosTinyAndLargeNumbers) {
  for (const float x : {0.0f, -0.0f, std::numeric_limits<float>::denorm_min(), 1e-38f}) {
    const std::vector<float> row(40, x);
    const FourBit result = packedRow(row.data(), FloatStorage::f32, 40);
    EXPECT_EQ(result.products, productsByDefinition(row));
  }
  const std::vector<float> row(40, kLargestFloat);
  const FourBit result = packedRow(row.data(), FloatStorage::f32, 40);
  EXPECT_EQ(result.products, std::vector<int8_t>(40, 126));
  EXPECT_EQ(result.scale, kLargestFloat / 126.0f);
}

TEST(FourBitRows, WhatIsNoNumberMakesTheRowNaN) {
  for (const float x :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const size_t at : {0, 33, 65}) {
      std::vector<float> row(66, 2.0f);
      row[at] = x;
      const FourBit result = packedRow(row.data(), FloatStorage::f32, 66);
      EXPECT_TRUE(std::isnan(result.scale));
      EXPECT_EQ(result.products, std::vector<int8_t>(66, 0));
      for (size_t group = 0; group < 3; ++group)
        EXPECT_EQ(result.packed[group * 12 + 11], 1);
    }
}

TEST(FourBitRows, AnyBytesCanBeUnpacked) {
  forEachSimdTarget([] {
    for (const int64_t columns : {32, 7}) {
      const std::vector<uint8_t> packed(static_cast<size_t>(FourBitRow{columns}.bytes()), 0xFF);
      std::vector<int8_t> products(static_cast<size_t>(columns));
      unpackFourBitRows({reinterpret_cast<const std::byte*>(packed.data()), 0, columns}, 1,
                        products.data());
      EXPECT_EQ(products, std::vector<int8_t>(static_cast<size_t>(columns), 126));
    }
  });
}

} // namespace
} // namespace kvopt
