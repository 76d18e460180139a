// Conversion of 8-bit codes of a constant matrix to strips of columns, which oneDNN reads.
#pragma once

#include <cstdint>

namespace kvopt::linear {

/// W [inner,columns] as int8. Unsigned codes are 128 smaller.
struct CodeStrips {
  int64_t inner = 0;
  int64_t columns = 0;
  bool isSigned = true; ///< whether the codes were signed
  /// [columns/64][inner/64][16][64][4], both divisions rounded up: four consecutive inner values of
  /// each of 64 columns. Missing numbers are 0.
  const int8_t* strips = nullptr;
  /// [columns]: sums of the numbers of each column.
  const int32_t* sums = nullptr;
};

/// Size in bytes of the strips of a matrix.
int64_t codeStripBytes(int64_t inner, int64_t columns);

/// Writes the strips of columns [begin,end) of a row-major matrix `codes`, and their sums. `begin`
/// is a multiple of 64. `strips` and `sums` are the start of all columns.
void packCodeStrips(const uint8_t* codes, bool isSigned, int64_t inner, int64_t columns,
                    int64_t begin, int64_t end, int8_t* strips, int32_t* sums);

} // namespace kvopt::linear
