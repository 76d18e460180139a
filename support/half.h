// Scalar conversions between f32 and the 16-bit floats: IEEE half (f16) and bfloat16 (bf16).
#pragma once

#include <bit>
#include <cstdint>

namespace kvopt {

/// The exact f32 value of an f16 bit pattern. NaN keeps its payload.
constexpr float f16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0x1F)
    return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent != 0)
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

/// The nearest f16, ties to even. Overflow gives infinity; NaN gives a quiet NaN of the same sign.
constexpr uint16_t floatToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u)
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude >= 0x477FF000u) // 65520 and more round to infinity
    return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude >= 0x38800000u) { // normal in f16: a carry out of the mantissa is the right result
    const uint32_t rebased = magnitude - (112u << 23);
    return static_cast<uint16_t>(sign | (rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13);
  }
  if (magnitude < 0x33000000u) // less than half of the smallest subnormal
    return static_cast<uint16_t>(sign);
  // Subnormal in f16: drop all bits below 2^-24, at least 14 and at most 24 of them.
  const uint32_t dropped = 126u - (magnitude >> 23);
  const uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
  const uint32_t half = 1u << (dropped - 1);
  const uint32_t odd = (significand >> dropped) & 1u;
  return static_cast<uint16_t>(sign | (significand + half - 1u + odd) >> dropped);
}

/// The exact f32 value of a bf16 bit pattern.
constexpr float bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// The nearest bf16, ties to even. Overflow gives infinity; NaN gives a quiet NaN of the same sign.
constexpr uint16_t floatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return static_cast<uint16_t>(bits >> 16 | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

} // namespace kvopt
