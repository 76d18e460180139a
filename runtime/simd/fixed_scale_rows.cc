// Codes of rows, and products of rows with the scales of their columns.
#include "runtime/simd/fixed_scale_rows.h"

#include "support/half.h"

#include <algorithm>
#include <cmath>

namespace kvopt::simd {

namespace {

float storedNumber(const void* row, FloatStorage storage, int64_t at) {
  if (storage == FloatStorage::f32)
    return static_cast<const float*>(row)[at];
  const uint16_t bits = static_cast<const uint16_t*>(row)[at];
  return storage == FloatStorage::f16 ? f16ToFloat(bits) : bf16ToFloat(bits);
}

float inverseOf(float scale) { return scale == 0.0f ? 1.0f : 1.0f / scale; }

int codeOf(float number, float inverse, float lowest, float largest) {
  // With this order of operands, NaN becomes the largest code.
  return static_cast<int>(std::max(lowest, std::min(largest, std::nearbyint(number * inverse))));
}

void writeByteRow(const void* row, FloatStorage storage, const FixedScales& scales, int64_t head,
                  int8_t* codes) {
  for (int64_t d = 0; d < scales.width; ++d)
    codes[d] = static_cast<int8_t>(
        codeOf(storedNumber(row, storage, d), inverseOf(scales.of(head, d)), -128.0f, 127.0f));
}

void writeNibbleRow(const void* row, FloatStorage storage, const FixedScales& scales, int64_t head,
                    uint8_t* packed) {
  const auto stored = [&](int64_t d) {
    if (d == scales.width)
      return nibbleOffset;
    return nibbleOffset +
           codeOf(storedNumber(row, storage, d), inverseOf(scales.of(head, d)), -8.0f, 7.0f);
  };
  for (int64_t d = 0; d < scales.width; d += 2)
    packed[d / 2] = static_cast<uint8_t>(stored(d) | stored(d + 1) << 4);
}

} // namespace

void writeFixedScaleRow(const void* row, FloatStorage storage, const FixedScales& scales,
                        int64_t head, CodeForm form, std::byte* codes) {
  if (form == CodeForm::nibbles)
    writeNibbleRow(row, storage, scales, head, reinterpret_cast<uint8_t*>(codes));
  else
    writeByteRow(row, storage, scales, head, reinterpret_cast<int8_t*>(codes));
}

void multiplyByScales(const void* from, FloatStorage storage, const FixedScales& scales,
                      int64_t head, float common, float* to) {
  for (int64_t d = 0; d < scales.width; ++d)
    to[d] = storedNumber(from, storage, d) * (scales.of(head, d) / common);
}

float commonScale(const FixedScales& scales, int64_t heads) {
  float largest = 0.0f;
  for (int64_t i = 0; i < heads * scales.width; ++i)
    largest = std::max(largest, std::fabs(scales.numbers[i]));
  if (largest == 0.0f || !std::isfinite(largest))
    return 1.0f;
  int exponent = 0;
  std::frexp(largest, &exponent);
  constexpr int largestExponent = 127;
  return std::ldexp(1.0f, std::min(exponent, largestExponent));
}

} // namespace kvopt::simd
