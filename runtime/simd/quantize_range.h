// Quantization of a whole tensor to uint8, as ONNX's DynamicQuantizeLinear defines it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvopt::simd {

/// Least and largest of the values and 0. NaNs are ignored.
struct ValueRange {
  float low = 0;
  float high = 0;
};
ValueRange rangeOf(const float* values, size_t count);

/// codes[i] = values[i] / scale to the nearest integer, ties to even, plus `zero`, limited to
/// [0,255]; `nanCode` if the quotient is NaN. `zero` is an integer in [0,255].
void quantizeRange(const float* values, size_t count, float scale, uint8_t zero, uint8_t nanCode,
                   uint8_t* codes);

} // namespace kvopt::simd
