// Conversion of integer codes of a matrix from the format of DequantizeLinear to that of
// BlockWeights.
#pragma once

#include "runtime/linear/block_product.h"

#include <cstdint>

namespace kvopt::linear {

/// A row-major matrix of integers of 2, 4 or 8 bits. Numbers in a byte are consecutive, across the
/// ends of rows, with the first in the lowest bits.
struct CodeMatrix {
  const uint8_t* bytes = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t bits = 8;
  /// Whether numbers are in two's complement. The packed numbers are 2^(bits-1) larger.
  bool isSigned = false;
};

/// Writes rows [begin,end) of BlockWeights::numbers for `weights`, whose `columns`, `inner`,
/// `bits`, `blockSize` and `blocks` are set. W is the matrix, or its transpose if `transposed`.
/// `numbers` is the start of all rows.
void packCodes(const CodeMatrix& codes, bool transposed, const BlockWeights& weights, int64_t begin,
               int64_t end, uint8_t* numbers);

} // namespace kvopt::linear
