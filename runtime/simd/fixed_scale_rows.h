// FixedScales: scales of rows of codes that do not depend on the token, as in ONNX Runtime's
// operators: one number for a whole cache, or one for each column of each head.
#pragma once

#include "runtime/simd/code_form.h"
#include "runtime/simd/float_storage.h"

#include <cstddef>
#include <cstdint>

namespace kvopt::simd {

/// Scales of one cache. A code q in column d of head g represents the number q * `of(g, d)`.
struct FixedScales {
  const float* numbers = nullptr; ///< [1] or, with `perColumn`, [G,D]
  bool perColumn = false;
  int64_t width = 0; ///< D

  float of(int64_t head, int64_t column) const {
    return numbers[perColumn ? head * width + column : 0];
  }
};

/// Quantizes a row of `scales.width` numbers of head `head` to codes of the form bytes or nibbles:
///
///   q = x * (1 / s) to the nearest integer, ties to even, within [-128, 127] or [-8, 7]
///
/// in f32, with each operation rounded once; 1 / s is 1 for s = 0. NaN becomes the largest code.
/// The code of a padding column after an odd width is 0.
void writeFixedScaleRow(const void* row, FloatStorage storage, const FixedScales& scales,
                        int64_t head, CodeForm form, std::byte* codes);

/// Computes to[d] = from[d] * (scale of column d / common) in f32. `to` may be `from`.
void multiplyByScales(const void* from, FloatStorage storage, const FixedScales& scales,
                      int64_t head, float common, float* to);

/// Power of two above the largest of the scales of `heads` heads, 1 if there is none. Scales that
/// are divided by it before they are multiplied with queries make no number larger.
float commonScale(const FixedScales& scales, int64_t heads);

} // namespace kvopt::simd
