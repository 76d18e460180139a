// Strips of codes hold the codes as signed numbers.
#include "runtime/linear/code_strips.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kvopt {
using namespace linear;

namespace {

TEST(CodeStrips, EveryNumberAndSum) {
  for (const bool isSigned : {false, true})
    for (const int64_t inner : {1, 4, 63, 65, 130})
      for (const int64_t columns : {1, 64, 100, 129}) {
        std::vector<uint8_t> codes(static_cast<size_t>(inner * columns));
        for (size_t i = 0; i < codes.size(); ++i)
          codes[i] = static_cast<uint8_t>(i * 151 + 3);
        std::vector<int8_t> strips(static_cast<size_t>(codeStripBytes(inner, columns)), 77);
        std::vector<int32_t> sums(static_cast<size_t>(columns), 77);
        for (int64_t begin = 0; begin < columns; begin += 64)
          packCodeStrips(codes.data(), isSigned, inner, columns, begin,
                         std::min(begin + 64, columns), strips.data(), sums.data());
        const int64_t padded = (inner + 63) / 64 * 64, width = (columns + 63) / 64 * 64;
        ASSERT_EQ(static_cast<int64_t>(strips.size()), padded * width);
        for (int64_t n = 0; n < width; ++n) {
          int32_t sum = 0;
          for (int64_t k = 0; k < padded; ++k) {
            int32_t expected = 0;
            if (k < inner && n < columns) {
              const uint8_t code = codes[static_cast<size_t>(k * columns + n)];
              expected = isSigned ? int32_t{static_cast<int8_t>(code)} : int32_t{code} - 128;
            }
            sum += expected;
            const int64_t index = n / 64 * padded * 64 + k / 4 * 256 + n % 64 * 4 + k % 4;
            ASSERT_EQ(strips[static_cast<size_t>(index)], expected) << k << ' ' << n;
          }
          if (n < columns) {
            ASSERT_EQ(sums[static_cast<size_t>(n)], sum) << n;
          }
        }
      }
}

} // namespace
} // namespace kvopt
