// Quantization of rows on every SIMD target, against the definition element by element.
#include "runtime/simd/quantize_row.h"

#include "support/half.h"
#include "tests/runtime/simd/targets.h"

#include <cmath>
#include <limits>
#include <random>

namespace kvopt {
using namespace simd;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
constexpr float kLargest = std::numeric_limits<float>::max();

struct Quantized {
  float scale;
  std::vector<int8_t> codes;
};

/// As ir/ops/kvopt/cache_operators.cc has it.
Quantized byDefinition(const std::vector<float>& row) {
  Quantized result{0, std::vector<int8_t>(row.size(), 0)};
  float largest = 0;
  for (const float x : row) {
    if (!std::isfinite(x))
      return {kNaN, result.codes};
    largest = std::max(largest, std::abs(x));
  }
  result.scale = largest / 127.0f;
  for (size_t d = 0; d < row.size(); ++d) {
    const float quotient = row[d] / (result.scale == 0 ? 1.0f : result.scale);
    result.codes[d] =
        static_cast<int8_t>(std::fmax(-127, std::fmin(127, std::nearbyint(quotient))));
  }
  return result;
}

/// With a byte on either side that must stay.
Quantized quantized(const void* row, FloatStorage storage, size_t width) {
  std::vector<int8_t> codes(width + 2, int8_t{99});
  Quantized result;
  result.scale = quantizeRow(row, storage, width, codes.data() + 1);
  EXPECT_EQ(codes.front(), 99);
  EXPECT_EQ(codes.back(), 99);
  result.codes.assign(codes.begin() + 1, codes.end() - 1);
  return result;
}

void expectSame(const Quantized& found, const Quantized& expected) {
  EXPECT_EQ(std::isnan(found.scale), std::isnan(expected.scale));
  if (!std::isnan(expected.scale)) {
    EXPECT_EQ(found.scale, expected.scale);
  }
  EXPECT_EQ(found.codes, expected.codes);
}

void expectByDefinition(const std::vector<float>& row) {
  expectSame(quantized(row.data(), FloatStorage::f32, row.size()), byDefinition(row));
}

TEST(QuantizeRow, EveryWidthAndStorage) {
  forEachSimdTarget([] {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (size_t width = 0; width <= 67; ++width)
      for (const float magnitude : {1.0f, 1e-6f, 1e4f}) {
        std::vector<float> row(width + 1);
        std::vector<uint16_t> f16(width + 1), bf16(width + 1);
        std::vector<float> fromF16, fromBf16;
        for (size_t d = 0; d <= width; ++d) {
          row[d] = magnitude * normal(random);
          f16[d] = floatToF16(row[d]);
          bf16[d] = floatToBf16(row[d]);
        }
        for (size_t d = 1; d <= width; ++d) {
          fromF16.push_back(f16ToFloat(f16[d]));
          fromBf16.push_back(bf16ToFloat(bf16[d]));
        }
        SCOPED_TRACE(testing::Message() << "width " << width << " magnitude " << magnitude);
        // From the second element on: nothing is aligned.
        expectSame(quantized(row.data() + 1, FloatStorage::f32, width),
                   byDefinition({row.begin() + 1, row.end()}));
        expectSame(quantized(f16.data() + 1, FloatStorage::f16, width), byDefinition(fromF16));
        expectSame(quantized(bf16.data() + 1, FloatStorage::bf16, width), byDefinition(fromBf16));
      }
  });
}

TEST(QuantizeRow, HalvesGoToTheEvenCode) {
  forEachSimdTarget([] {
    // A scale of 2: codes are halves of the elements.
    const std::vector<float> row = {254, 1, 3, 5, -1, -3, -5, 253, -253, 0, 7};
    const Quantized result = quantized(row.data(), FloatStorage::f32, row.size());
    EXPECT_EQ(result.scale, 2.0f);
    EXPECT_EQ(result.codes, (std::vector<int8_t>{127, 0, 2, 2, 0, -2, -2, 126, -126, 0, 4}));
    expectByDefinition(row);
  });
}

TEST(QuantizeRow, ErrorIsHalfAScale) {
  forEachSimdTarget([] {
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    for (int round = 0; round < 200; ++round) {
      std::vector<float> row(97);
      for (float& x : row)
        x = normal(random);
      const Quantized result = quantized(row.data(), FloatStorage::f32, row.size());
      for (size_t d = 0; d < row.size(); ++d) {
        const double error =
            std::abs(double{row[d]} - double{result.scale} * static_cast<double>(result.codes[d]));
        // The quotient is rounded once: at most 127 * 2^-24 of a scale beyond the half.
        ASSERT_LE(error, double{result.scale} * (0.5 + 127 * 0x1p-24));
      }
    }
  });
}

TEST(QuantizeRow, ZerosSubnormalsAndTheEndsOfTheRange) {
  forEachSimdTarget([] {
    for (const size_t width : {1, 5, 8, 16, 23, 40}) {
      expectByDefinition(std::vector<float>(width, 0.0f));
      expectByDefinition(std::vector<float>(width, -0.0f));
      for (const float x : {kSmallest, 60 * kSmallest, 190 * kSmallest, 1e-38f, kLargest}) {
        std::vector<float> row(width, -x);
        row[width / 2] = x / 3;
        expectByDefinition(row);
        EXPECT_LE(std::abs(int{quantized(row.data(), FloatStorage::f32, width).codes[0]}), 127);
      }
    }
  });
}

TEST(QuantizeRow, WhatIsNoNumberMakesTheRowNaN) {
  forEachSimdTarget([] {
    for (const size_t width : {1, 4, 7, 8, 9, 16, 17, 33})
      for (const float x : {kNaN, kInfinity, -kInfinity})
        for (size_t at = 0; at < width; ++at) {
          std::vector<float> row(width, 2.0f);
          row[at] = x;
          const Quantized result = quantized(row.data(), FloatStorage::f32, width);
          EXPECT_TRUE(std::isnan(result.scale));
          EXPECT_EQ(result.codes, std::vector<int8_t>(width, 0));
        }
  });
}

} // namespace
} // namespace kvopt
