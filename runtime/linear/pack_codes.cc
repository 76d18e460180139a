// Packing of integer codes in strips of rows.
#include "runtime/linear/pack_codes.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace kvopt::linear {
namespace {

/// Number of rows of W that are written together, so that a cache line of a transposed matrix is
/// read once.
constexpr int64_t stripRows = 64;

/// Number `index` of a row-major matrix, as an unsigned number.
template <int Bits> uint8_t codeAt(const CodeMatrix& codes, int64_t index) {
  if constexpr (Bits == 8)
    return codes.bytes[index];
  constexpr int64_t perByte = 8 / Bits;
  const auto shift = static_cast<unsigned>(index % perByte * Bits);
  return static_cast<uint8_t>((codes.bytes[index / perByte] >> shift) & ((1u << Bits) - 1));
}

template <int Bits>
void packRows(const CodeMatrix& codes, bool transposed, const BlockWeights& weights, int64_t begin,
              int64_t end, uint8_t* numbers) {
  constexpr int64_t perByte = 8 / Bits;
  // Adding half the range to a number in two's complement flips its highest bit.
  const uint8_t flip = codes.isSigned ? 1u << (Bits - 1) : 0;
  const int64_t rowStride = transposed ? 1 : codes.columns;
  const int64_t innerStride = transposed ? codes.columns : 1;
  const int64_t rowBytes = weights.rowBytes();
  std::memset(numbers + begin * rowBytes, 0, static_cast<size_t>((end - begin) * rowBytes));
  for (int64_t k = 0; k < weights.inner; ++k) {
    const auto shift = static_cast<unsigned>(k % perByte * Bits);
    uint8_t* to = numbers + begin * rowBytes + k / perByte;
    int64_t from = begin * rowStride + k * innerStride;
    for (int64_t n = begin; n < end; ++n, to += rowBytes, from += rowStride)
      *to = static_cast<uint8_t>(
          *to | (static_cast<unsigned>(codeAt<Bits>(codes, from) ^ flip) << shift));
  }
}

} // namespace

void packCodes(const CodeMatrix& codes, bool transposed, const BlockWeights& weights, int64_t begin,
               int64_t end, uint8_t* numbers) {
  assert(codes.bits == weights.bits && begin >= 0 && end <= weights.columns);
  assert((transposed ? codes.columns : codes.rows) == weights.columns &&
         (transposed ? codes.rows : codes.columns) == weights.inner);
  const auto pack = codes.bits == 2 ? packRows<2> : codes.bits == 4 ? packRows<4> : packRows<8>;
  for (int64_t row = begin; row < end; row += stripRows)
    pack(codes, transposed, weights, row, std::min(row + stripRows, end), numbers);
}

} // namespace kvopt::linear
