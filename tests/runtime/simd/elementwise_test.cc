// The elementwise kernels on every SIMD target, against double loops and the scalar conversions.
#include "runtime/simd/elementwise.h"

#include "support/half.h"
#include "tests/runtime/simd/rounding_bound.h"
#include "tests/runtime/simd/targets.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kvopt {
using namespace simd;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> randomFloats(size_t count, float magnitude, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-magnitude, magnitude);
  std::vector<float> values(count);
  for (float& value : values)
    value = uniform(random);
  return values;
}

TEST(Elementwise, DotMatchesTheDoubleLoop) {
  forEachSimdTarget([] {
    for (size_t count = 0; count <= 150; ++count) {
      const auto a = randomFloats(count + 1, 3, 1), b = randomFloats(count + 3, 3, 2);
      double exact = 0, magnitude = 0;
      for (size_t i = 0; i < count; ++i) {
        exact += double{a[i + 1]} * double{b[i + 3]};
        magnitude += std::abs(double{a[i + 1]} * double{b[i + 3]});
      }
      EXPECT_NEAR(dot(a.data() + 1, b.data() + 3, count), exact,
                  roundings(static_cast<double>(count) + 1) * magnitude)
          << count;
    }
  });
}

/// exp within 2 ulp, the rounding of x - max (|x - max| * unit), the sum, and the division.
TEST(Elementwise, SoftmaxMatchesTheDoubleLoop) {
  forEachSimdTarget([] {
    for (const float magnitude : {1.0f, 30.0f, 1e4f})
      for (size_t count = 1; count <= 70; ++count) {
        auto in = randomFloats(count + 1, magnitude, 3);
        if (count > 4)
          in[3] = -kInfinity;
        std::vector<float> out(count + 2, 7.0f);
        softmaxRow(in.data() + 1, out.data() + 1, count);
        EXPECT_EQ(out[0], 7.0f);
        EXPECT_EQ(out[count + 1], 7.0f);
        double maximum = -INFINITY, sum = 0;
        for (size_t i = 1; i <= count; ++i)
          maximum = std::max(maximum, double{in[i]});
        for (size_t i = 1; i <= count; ++i)
          sum += std::exp(in[i] - maximum);
        const double relative =
            2 * (4 * floatUnit + 88 * floatUnit) + roundings(static_cast<double>(count) + 2);
        for (size_t i = 1; i <= count; ++i) {
          const double exact = std::exp(in[i] - maximum) / sum;
          EXPECT_NEAR(out[i], exact, relative * exact + 0x1p-126) << count << ' ' << i;
        }
      }
  });
}

TEST(Elementwise, SoftmaxInPlaceAndOfNothing) {
  forEachSimdTarget([] {
    std::vector<float> row(19, 2.5f);
    softmaxRow(row.data(), row.data(), row.size());
    for (const float value : row)
      EXPECT_FLOAT_EQ(value, 1.0f / 19);
    softmaxRow(row.data(), row.data(), 0);
    std::vector<float> hidden(21, -kInfinity);
    softmaxRow(hidden.data(), hidden.data(), hidden.size());
    for (const float value : hidden)
      EXPECT_TRUE(std::isnan(value));
  });
}

/// The error of exp itself, seen through a row of two whose maximum is 0 and sum is known.
TEST(Elementwise, ExponentialIsWithinTwoUlp) {
  forEachSimdTarget([] {
    std::vector<float> out(2);
    for (int i = 1; i < 20000; ++i) {
      const float x = -87.3f * static_cast<float>(i) / 20000;
      const float in[2] = {0.0f, x};
      softmaxRow(in, out.data(), 2);
      // out[1] / out[0] is e^x; each quotient and the sum they share add half an ulp apiece.
      const double ratio = double{out[1]} / double{out[0]};
      EXPECT_NEAR(ratio / std::exp(double{x}), 1.0, (4 + 2) * floatUnit) << x;
    }
  });
}

TEST(Elementwise, WideningEveryPatternMatchesTheScalar) {
  std::vector<uint16_t> patterns(0x10000 + 7);
  for (size_t i = 0; i < patterns.size(); ++i)
    patterns[i] = static_cast<uint16_t>(i);
  forEachSimdTarget([&] {
    std::vector<float> f16(patterns.size()), bf16(patterns.size());
    convertF16ToF32(patterns.data(), f16.data(), patterns.size());
    convertBf16ToF32(patterns.data(), bf16.data(), patterns.size());
    for (size_t i = 0; i < patterns.size(); ++i) {
      const float expected = f16ToFloat(patterns[i]);
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(f16[i])) << i;
      else
        ASSERT_EQ(std::bit_cast<uint32_t>(f16[i]), std::bit_cast<uint32_t>(expected)) << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(bf16[i]), uint32_t{patterns[i]} << 16) << i;
    }
  });
}

TEST(Elementwise, NarrowingMatchesTheScalar) {
  std::mt19937 random(5);
  std::vector<float> values;
  for (int i = 0; i < 50001; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) { // midpoints and their neighbors
    const float low = f16ToFloat(static_cast<uint16_t>(bits));
    const float middle = low + (f16ToFloat(static_cast<uint16_t>(bits + 1)) - low) / 2;
    values.insert(values.end(), {middle, std::nextafter(middle, 0.0f), -low});
  }
  forEachSimdTarget([&] {
    std::vector<uint16_t> f16(values.size()), bf16(values.size());
    convertF32ToF16(values.data(), f16.data(), values.size());
    convertF32ToBf16(values.data(), bf16.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(f16ToFloat(f16[i]))) << i;
        ASSERT_TRUE(std::isnan(bf16ToFloat(bf16[i]))) << i;
        continue;
      }
      ASSERT_EQ(f16[i], floatToF16(values[i])) << values[i];
      ASSERT_EQ(bf16[i], floatToBf16(values[i])) << values[i];
    }
  });
}

} // namespace
} // namespace kvopt
