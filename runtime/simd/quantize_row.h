// Quantization of one row to int8 with a scale, as ai.kvopt::InPlaceQuantizedKvSdpa defines it.
#pragma once

#include "runtime/simd/float_storage.h"

#include <cstddef>

namespace kvopt::simd {

/// Writes `width` codes and returns the scale:
///
///   scale = max |row| / 127,   codes[d] = row[d] / scale to the nearest integer, halves to even
///
/// in f32, each rounded once, codes within [-127, 127]. A row whose scale is 0 has codes 0; one
/// with a NaN or an infinity has codes 0 and the scale NaN.
float quantizeRow(const void* row, FloatStorage storage, size_t width, int8_t* codes);

} // namespace kvopt::simd
