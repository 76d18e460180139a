// Conversion of one row of a cache to codes with a scale, and back.
#pragma once

#include "ir/rows/row_code.h"
#include "runtime/simd/float_storage.h"

namespace kvopt::runtime {

/// Writes `code.elementsOf(columns)` contiguous codes, and returns the scale. ir/rows/row_code.h
/// defines the result for rows of zeros, and for rows with a NaN or an infinity.
float encodeRow(const ir::RowCode& code, const std::byte* row, simd::FloatStorage storage,
                int64_t columns, std::byte* codes);

/// Writes the `columns` numbers that the codes represent before scaling.
void decodeRow(const ir::RowCode& code, const std::byte* codes, int64_t columns, float* numbers);

} // namespace kvopt::runtime
