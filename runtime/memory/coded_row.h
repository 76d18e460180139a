// One row of a cache as codes with a scale, and back.
#pragma once

#include "ir/rows/row_code.h"
#include "runtime/simd/float_storage.h"

namespace kvopt::runtime {

/// Writes `code.elementsOf(columns)` codes, side by side, and returns the scale. Rows of zeros, and
/// rows without a number, are as ir/rows/row_code.h says.
float encodeRow(const ir::RowCode& code, const std::byte* row, simd::FloatStorage storage,
                int64_t columns, std::byte* codes);

/// Writes what the codes stand for before they are multiplied by the scale: `columns` numbers.
void decodeRow(const ir::RowCode& code, const std::byte* codes, int64_t columns, float* numbers);

} // namespace kvopt::runtime
