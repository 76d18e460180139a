// Packed codes stand for the numbers that they are packed from.
#include "runtime/linear/pack_codes.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvopt {
using namespace linear;

namespace {

int64_t codeAt(const CodeMatrix& codes, int64_t index) {
  const int64_t perByte = 8 / codes.bits;
  const int64_t mask = (int64_t{1} << codes.bits) - 1;
  const int64_t code = codes.bytes[index / perByte] >> (index % perByte * codes.bits) & mask;
  return codes.isSigned && code > mask / 2 ? code - mask - 1 : code;
}

TEST(PackCodes, EveryWidthOrderAndTail) {
  for (int64_t bits : {2, 4, 8})
    for (bool isSigned : {false, true})
      for (bool transposed : {false, true})
        for (int64_t inner : {1, 16, 33})
          for (int64_t columns : {1, 7, 65}) {
            CodeMatrix codes;
            codes.rows = transposed ? inner : columns;
            codes.columns = transposed ? columns : inner;
            codes.bits = bits;
            codes.isSigned = isSigned;
            std::vector<uint8_t> bytes(static_cast<size_t>((inner * columns * bits + 7) / 8));
            for (size_t i = 0; i < bytes.size(); ++i)
              bytes[i] = static_cast<uint8_t>(i * 151 + 3);
            codes.bytes = bytes.data();
            BlockWeights weights;
            weights.columns = columns;
            weights.inner = inner;
            weights.bits = bits;
            weights.blockSize = 16;
            weights.blocks = (inner + 15) / 16;
            const std::vector<float> scales(static_cast<size_t>(columns * weights.blocks), 1.0f);
            weights.scales = scales.data();
            const std::vector<float> zeros(scales.size(),
                                           isSigned ? static_cast<float>(1 << (bits - 1)) : 0.0f);
            weights.zeroKind = BlockWeights::Zeros::floats;
            weights.zeros = zeros.data();
            std::vector<uint8_t> numbers(static_cast<size_t>(columns * weights.rowBytes()), 0xa5);
            const int64_t middle = columns / 2;
            packCodes(codes, transposed, weights, 0, middle, numbers.data());
            packCodes(codes, transposed, weights, middle, columns, numbers.data());
            weights.numbers = numbers.data();
            std::vector<float> row(static_cast<size_t>(inner));
            for (int64_t n = 0; n < columns; ++n) {
              weights.expand(n, 0, inner, row.data());
              for (int64_t k = 0; k < inner; ++k)
                ASSERT_EQ(
                    row[static_cast<size_t>(k)],
                    static_cast<float>(codeAt(codes, transposed ? k * columns + n : n * inner + k)))
                    << bits << ' ' << isSigned << ' ' << transposed << ' ' << n << ' ' << k;
            }
          }
}

} // namespace
} // namespace kvopt
