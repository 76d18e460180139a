// Unpacking of rows of nibbles on every SIMD target, against the definition.
#include "runtime/simd/code_form.h"

#include "tests/runtime/simd/targets.h"

#include <random>
#include <vector>

namespace kvopt {
using namespace simd;

namespace {

TEST(CodeForm, BytesOfARow) {
  EXPECT_EQ(codeRowBytes(CodeForm::bytes, 80), 80);
  EXPECT_EQ(codeRowBytes(CodeForm::fourBitRows, 80), 45);
  EXPECT_EQ(codeRowBytes(CodeForm::nibbles, 80), 40);
  EXPECT_EQ(codeRowBytes(CodeForm::nibbles, 7), 4);
  EXPECT_EQ(codeRowBytes(CodeForm::nibbles, 0), 0);
}

TEST(CodeForm, NibblesOfEveryWidth) {
  forEachSimdTarget([] {
    std::mt19937 random(3);
    for (int64_t columns = 1; columns <= 140; ++columns)
      for (const int64_t spare : {0, 1, 5}) {
        constexpr int64_t count = 3;
        const int64_t stride = codeRowBytes(CodeForm::nibbles, columns) + spare;
        // No byte behind the last row is there to be read.
        std::vector<uint8_t> packed(static_cast<size_t>((count - 1) * stride + stride - spare));
        for (uint8_t& byte : packed)
          byte = static_cast<uint8_t>(random());
        std::vector<int8_t> codes(static_cast<size_t>(count * columns) + 2, int8_t{99});
        unpackCodeRows(CodeForm::nibbles,
                       {reinterpret_cast<const std::byte*>(packed.data()), stride, columns}, count,
                       codes.data() + 1);
        EXPECT_EQ(codes.front(), 99);
        EXPECT_EQ(codes.back(), 99);
        for (int64_t i = 0; i < count * columns; ++i) {
          const int64_t row = i / columns, column = i % columns;
          const int byte = packed[static_cast<size_t>(row * stride + column / 2)];
          ASSERT_EQ(int{codes[static_cast<size_t>(i) + 1]},
                    (column % 2 == 0 ? byte & 15 : byte >> 4) - 8)
              << "columns " << columns << " row " << row << " column " << column;
        }
      }
  });
}

} // namespace
} // namespace kvopt
