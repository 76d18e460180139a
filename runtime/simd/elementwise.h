// Vectorized loops over contiguous f32 arrays: softmax, dot product, storage conversions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvopt::simd {

/// out[i] = exp(in[i] - max) / sum_j exp(in[j] - max); `out` may be `in`. As in the formula, a row
/// of -inf gives NaN. Exponentials below the smallest normal f32 are 0.
void softmaxRow(const float* in, float* out, size_t count);

/// sum_i a[i] * b[i], accumulated in f32 over several chains.
float dot(const float* a, const float* b, size_t count);

/// Array versions of the conversions in support/half.h, with equal results except for NaN payloads.
void convertF16ToF32(const uint16_t* in, float* out, size_t count);
void convertBf16ToF32(const uint16_t* in, float* out, size_t count);
void convertF32ToF16(const float* in, uint16_t* out, size_t count);
void convertF32ToBf16(const float* in, uint16_t* out, size_t count);

} // namespace kvopt::simd
