// Rotary position embedding of one row.
#pragma once

#include "runtime/simd/float_storage.h"

#include <cstdint>

namespace kvopt::simd {

/// Cosines and sines of one position, `half` each.
struct RotaryRow {
  const float* cosine = nullptr;
  const float* sine = nullptr;
  int64_t half = 0; ///< number of rotated pairs
  bool interleaved = false;
};

/// Writes `width` numbers, at least 2 * half. The first 2 * half are rotated, the others copied:
///
///   to[first]  = cos * from[first] - sin * from[second]
///   to[second] = sin * from[first] + cos * from[second]
///
/// where pair i is (i, i + half), or (2i, 2i + 1) if interleaved. Computed in f32, rounded once.
void rotateRow(const void* from, void* to, FloatStorage storage, int64_t width,
               const RotaryRow& angles);

} // namespace kvopt::simd
