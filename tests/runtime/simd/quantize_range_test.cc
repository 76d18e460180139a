// Ranges and codes against the formula, on every SIMD target.
#include "runtime/simd/quantize_range.h"

#include "tests/runtime/simd/targets.h"

#include <cmath>
#include <limits>
#include <vector>

namespace kvopt {
using namespace simd;

namespace {

TEST(QuantizeRange, TailsTiesAndLimits) {
  const std::vector<float> pattern = {0.5f, 1.5f, -2.5f, 3.4f, -200, 300, 1e30f, -1e30f, 7, 0};
  for (size_t count = 0; count <= 40; ++count) {
    std::vector<float> values;
    float low = 0, high = 0;
    for (size_t i = 0; i < count; ++i) {
      values.push_back(pattern[i * 7 % pattern.size()]);
      low = std::min(low, values.back());
      high = std::max(high, values.back());
    }
    forEachSimdTarget([&] {
      const ValueRange range = rangeOf(values.data(), count);
      EXPECT_EQ(range.low, low);
      EXPECT_EQ(range.high, high);
      std::vector<uint8_t> codes(count + 1, 99);
      quantizeRange(values.data(), count, 0.5f, 100, 3, codes.data());
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(codes[i], std::clamp(std::nearbyint(values[i] / 0.5f) + 100.0f, 0.0f, 255.0f))
            << values[i];
      EXPECT_EQ(codes[count], 99);
    });
  }
}

TEST(QuantizeRange, NaNIsIgnoredAndHasItsCode) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values(37, 1.0f);
  values[3] = values[36] = nan;
  values[5] = -2;
  forEachSimdTarget([&] {
    const ValueRange range = rangeOf(values.data(), values.size());
    EXPECT_EQ(range.low, -2);
    EXPECT_EQ(range.high, 1);
    std::vector<uint8_t> codes(values.size());
    quantizeRange(values.data(), values.size(), 1.0f, 10, 42, codes.data());
    EXPECT_EQ(codes[3], 42);
    EXPECT_EQ(codes[36], 42);
    EXPECT_EQ(codes[4], 11);
    EXPECT_EQ(codes[5], 8);
  });
}

} // namespace
} // namespace kvopt
