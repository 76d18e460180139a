// Rotating and moving rows of every type and layout.
#include "runtime/cache/rotate_rows.h"

#include "runtime/memory/buffer.h"
#include "runtime/simd/four_bit_rows.h"
#include "runtime/simd/quantize_row.h"
#include "support/half.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// A number in (-1, 1) for element `i` of row `row`.
float rowNumber(int64_t row, int64_t i) {
  return static_cast<float>((row * 37 + i * 11) % 61 - 30) / 31.0f;
}

/// Row `row` after a turn by so many positions.
std::vector<double> turnedRow(std::vector<double> row, const ManifestRotation& rotation,
                              int64_t positions) {
  const auto pairs = static_cast<int64_t>(rotation.theta.size());
  for (size_t start = 0; start < row.size(); start += static_cast<size_t>(rotation.width))
    for (int64_t i = 0; i < pairs; ++i) {
      const auto low =
          start + static_cast<size_t>(rotation.first + (rotation.interleaved ? 2 * i : i));
      const size_t high = low + (rotation.interleaved ? 1 : static_cast<size_t>(pairs));
      const double angle = static_cast<double>(positions) * rotation.theta[static_cast<size_t>(i)];
      const double x = row[low];
      const double y = row[high];
      row[low] = x * std::cos(angle) - y * std::sin(angle);
      row[high] = x * std::sin(angle) + y * std::cos(angle);
    }
  return row;
}

const ManifestRotation rotations[] = {
    {8, 0, false, {1.0, 0.5, 0.25, 0.125}},
    {8, 0, true, {1.0, 0.5, 0.25, 0.125}},
    {8, 2, false, {0.75, -0.1}},
    {8, 4, true, {0.75}},
    {4, 1, false, {0.3}},
};

template <class T> struct Stored {
  ElementType type;
  T (*encode)(float);
  float (*decode)(T);
  double tolerance;
};

template <class T> void expectTurns(const Stored<T>& stored) {
  constexpr int64_t rows = 6;
  constexpr int64_t columns = 8;
  for (const ManifestRotation& rotation : rotations)
    for (bool transposed : {false, true})
      for (int64_t positions : {-7, 0, 3, -100000}) {
        std::vector<T> numbers(static_cast<size_t>(rows * columns));
        const auto place = [&](int64_t row, int64_t column) {
          return static_cast<size_t>(transposed ? column * rows + row : row * columns + column);
        };
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t column = 0; column < columns; ++column)
            numbers[place(row, column)] = stored.encode(rowNumber(row, column));
        const std::vector<T> before = numbers;
        const Extents shape = transposed ? Extents{1, columns, rows} : Extents{1, rows, columns};
        rotateRows(TensorView::contiguous(stored.type, shape,
                                          reinterpret_cast<std::byte*>(numbers.data())),
                   transposed ? 1 : 2, rotation, positions);
        for (int64_t row = 0; row < rows; ++row) {
          std::vector<double> expected;
          for (int64_t column = 0; column < columns; ++column)
            expected.push_back(stored.decode(before[place(row, column)]));
          expected = turnedRow(std::move(expected), rotation, positions);
          for (int64_t column = 0; column < columns; ++column)
            EXPECT_NEAR(stored.decode(numbers[place(row, column)]),
                        expected[static_cast<size_t>(column)], stored.tolerance)
                << row << " " << column;
        }
      }
}

TEST(RotateRows, AreTurnedInEveryType) {
  // Numbers are below 2: half an ulp of float32, float16, and bfloat16.
  expectTurns<float>(
      {ElementType::Float, [](float x) { return x; }, [](float x) { return x; }, 4 * 0x1p-24});
  expectTurns<uint16_t>({ElementType::Float16, floatToF16, f16ToFloat, 0x1p-11 + 4 * 0x1p-24});
  expectTurns<uint16_t>({ElementType::BFloat16, floatToBf16, bf16ToFloat, 0x1p-8 + 4 * 0x1p-24});
  EXPECT_FALSE(canRotate(ElementType::Int8));
  EXPECT_FALSE(canRotate(ElementType::Double));
  EXPECT_TRUE(canRotate(ElementType::BFloat16));
}

TEST(RotateRows, QuantizesAgain) {
  constexpr int64_t rows = 5;
  constexpr int64_t columns = 8;
  for (const ManifestRotation& rotation : rotations) {
    std::vector<int8_t> codes(static_cast<size_t>(rows * columns));
    std::vector<float> scales(static_cast<size_t>(rows));
    std::vector<std::vector<double>> expected;
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<float> numbers;
      for (int64_t column = 0; column < columns; ++column)
        numbers.push_back(row == 3 ? 0.0f : rowNumber(row, column));
      scales[static_cast<size_t>(row)] =
          simd::quantizeRow(numbers.data(), simd::FloatStorage::f32, numbers.size(),
                            &codes[static_cast<size_t>(row * columns)]);
      std::vector<double> held;
      for (int64_t column = 0; column < columns; ++column)
        held.push_back(codes[static_cast<size_t>(row * columns + column)] *
                       double{scales[static_cast<size_t>(row)]});
      expected.push_back(turnedRow(std::move(held), rotation, -9));
    }
    rotateCodedRows(TensorView::contiguous(ElementType::Int8, {1, rows, columns},
                                           reinterpret_cast<std::byte*>(codes.data())),
                    TensorView::contiguous(ElementType::Float, {1, rows, 1},
                                           reinterpret_cast<std::byte*>(scales.data())),
                    2, columns, rotation, -9);
    for (int64_t row = 0; row < rows; ++row) {
      const double scale = scales[static_cast<size_t>(row)];
      EXPECT_EQ(scale == 0, row == 3);
      for (int64_t column = 0; column < columns; ++column)
        EXPECT_NEAR(codes[static_cast<size_t>(row * columns + column)] * scale,
                    expected[static_cast<size_t>(row)][static_cast<size_t>(column)],
                    scale / 2 + 1e-6);
    }
  }
}

TEST(RotateRows, PacksFourBitsAgain) {
  constexpr int64_t rows = 5;
  constexpr int64_t columns = 8;
  constexpr int64_t bytes = FourBitRow{columns}.bytes();
  for (const ManifestRotation& rotation : rotations) {
    std::vector<uint8_t> codes(static_cast<size_t>(rows * bytes));
    std::vector<float> scales(static_cast<size_t>(rows));
    const auto rowOf = [&](int64_t row) {
      std::vector<int8_t> products(columns);
      simd::unpackFourBitRows(
          {reinterpret_cast<const std::byte*>(codes.data()) + row * bytes, 0, columns}, 1,
          products.data());
      std::vector<double> held;
      for (int8_t product : products)
        held.push_back(product * double{scales[static_cast<size_t>(row)]});
      return held;
    };
    std::vector<std::vector<double>> expected;
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<float> numbers;
      for (int64_t column = 0; column < columns; ++column)
        numbers.push_back(row == 3 ? 0.0f : rowNumber(row, column));
      scales[static_cast<size_t>(row)] =
          simd::quantizeFourBitRow(numbers.data(), simd::FloatStorage::f32, columns,
                                   &codes[static_cast<size_t>(row * bytes)]);
      expected.push_back(turnedRow(rowOf(row), rotation, -9));
    }
    rotateCodedRows(TensorView::contiguous(ElementType::UInt8, {1, rows, bytes},
                                           reinterpret_cast<std::byte*>(codes.data())),
                    TensorView::contiguous(ElementType::Float, {1, rows, 1},
                                           reinterpret_cast<std::byte*>(scales.data())),
                    2, columns, rotation, -9);
    for (int64_t row = 0; row < rows; ++row) {
      const double step = FourBitRow::largestMultiplier * double{scales[static_cast<size_t>(row)]};
      EXPECT_EQ(step == 0, row == 3);
      const std::vector<double> found = rowOf(row);
      for (size_t column = 0; column < columns; ++column)
        EXPECT_NEAR(found[column], expected[static_cast<size_t>(row)][column], step / 2 + 1e-6);
    }
  }
}

TEST(RotateRows, MovesRowsOverThoseThatAreDropped) {
  for (int64_t first : {0, 2, 5})
    for (int64_t dropped : {1, 2, 3, 5})
      for (int64_t end : {5, 7, 10}) {
        if (first + dropped > end)
          continue;
        std::vector<int8_t> numbers;
        for (int64_t i = 0; i < 3 * 10 * 2; ++i)
          numbers.push_back(static_cast<int8_t>(i));
        const std::vector<int8_t> before = numbers;
        moveRowsForward(TensorView::contiguous(ElementType::Int8, {3, 10, 2},
                                               reinterpret_cast<std::byte*>(numbers.data())),
                        1, first, dropped, end);
        for (int64_t head = 0; head < 3; ++head)
          for (int64_t row = 0; row < 10; ++row) {
            if (row >= end - dropped && row < end)
              continue; // means nothing any more
            const int64_t source = row >= first && row < end - dropped ? row + dropped : row;
            for (int64_t column = 0; column < 2; ++column)
              EXPECT_EQ(numbers[static_cast<size_t>((head * 10 + row) * 2 + column)],
                        before[static_cast<size_t>((head * 10 + source) * 2 + column)]);
          }
      }
}

} // namespace
} // namespace kvopt
