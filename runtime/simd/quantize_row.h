// Quantization of one row to int8 with a scale, as ai.kvopt::InPlaceQuantizedKvSdpa defines it.
#pragma once

#include "runtime/simd/float_storage.h"

#include <cstddef>

namespace kvopt::simd {

/// Writes `width` codes and returns the scale:
///
///   scale = max |row| / 127,   codes[d] = row[d] / scale to the nearest integer, ties to even
///
/// in f32, with each operation rounded once; codes are within [-127, 127]. A row with scale 0 has
/// codes 0. So does a row with a NaN or an infinity, whose scale is NaN.
float quantizeRow(const void* row, FloatStorage storage, size_t width, int8_t* codes);

} // namespace kvopt::simd
