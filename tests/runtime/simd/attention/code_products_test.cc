// Products of rows in digits with rows of codes, against double; memory that is not theirs is
// guarded.
#include "runtime/simd/attention/code_products.h"

#include "tests/runtime/linear/guarded_pages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <random>
#include <vector>

namespace kvopt {
using namespace simd;

namespace {

constexpr int64_t lanes = 16;

size_t index(int64_t i) { return static_cast<size_t>(i); }

/// Rows of f32 and keys of codes.
class Problem {
public:
  Problem(int64_t columns, int64_t rowCount, int64_t keyCount)
      : width(columns), rows(rowCount), keys(keyCount), random(static_cast<uint32_t>(columns)),
        values(index(rows * width)), codes(index(keys * stride())),
        memory(index(rows * QueryDigits::words(width))) {
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> code(-128, 127);
    for (float& value : values)
      value = normal(random);
    for (int8_t& each : codes)
      each = static_cast<int8_t>(code(random));
  }

  int64_t stride() const { return width + 5; }
  float& value(int64_t row, int64_t column) { return values[index(row * width + column)]; }
  QueryDigits digits() { return {memory.data(), width, rows}; }

  /// Writes a row from vectors that lie three apart, the last right-aligned, NaN around them.
  bool write(int64_t row) {
    const int64_t vectors = (width + lanes - 1) / lanes, tail = width % lanes;
    std::vector<float> packed(index(3 * lanes * vectors), NAN);
    for (int64_t column = 0; column < width; ++column) {
      const int64_t whole = width - tail, lane = column % lanes;
      const int64_t shift = column < whole ? 0 : lanes - tail;
      packed[index(column / lanes * 3 * lanes + lane + shift)] = value(row, column);
    }
    return writeDigits(packed.data(), 3 * lanes, digits(), row);
  }

  /// Writes all rows and checks the scores of keys [begin,end) of a tile whose other keys nobody
  /// may read.
  void check(int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows; ++row)
      ASSERT_TRUE(write(row));
    const size_t from = index(begin * stride());
    const size_t bytes = index((end - begin - 1) * stride() + width);
    const std::span<const int8_t> part(codes.data() + from, bytes);
    static GuardedPages pages(size_t{1} << 17);
    for (const bool first : {false, true}) {
      const int8_t* base = pages.place<int8_t>(part, first) - begin * stride();
      std::vector<float> scores(index(rows * kAttentionTileKeys), NAN);
      const CachePlane none{reinterpret_cast<const std::byte*>(base), stride(), width};
      ReadAhead ahead(none, none, {}, 0);
      scoreCodes({base, stride()}, 0, {begin, end}, digits(), ahead, scores.data());
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t key = begin; key < end; ++key)
          expectScore(row, key, scores[index(row * kAttentionTileKeys + key)]);
    }
  }

  int64_t width, rows, keys;

private:
  void expectScore(int64_t row, int64_t key, double score) {
    constexpr double unit = 0x1p-24;
    double dot = 0, largest = 0, sum = 0;
    for (int64_t column = 0; column < width; ++column) {
      const double x = value(row, column), code = codes[index(key * stride() + column)];
      dot += x * code;
      largest = std::max(largest, std::abs(x));
      sum += std::abs(code);
    }
    // What rows are not, and the roundings: of the sum of the lower two digits, which are less than
    // 32897 steps, of the whole, and of its product with the step, which may be below normal
    // numbers.
    const double bound =
        (1.51 + 32897 / 8355000.0) * unit * largest * sum + 3 * unit * std::abs(dot) + 0x1p-149;
    ASSERT_NEAR(score, dot, bound)
        << fmt::format("width {} row {} of {} key {}", width, row, rows, key);
  }

  std::mt19937 random;
  std::vector<float> values;
  std::vector<int8_t> codes;
  std::vector<int32_t> memory;
};

class CodeProducts : public testing::Test {
protected:
  void SetUp() override {
    if (!hasByteProducts())
      GTEST_SKIP() << "this CPU does not multiply bytes";
  }
};

TEST_F(CodeProducts, EveryWidth) {
  for (int64_t width = 1; width <= 131; ++width)
    for (const int64_t rows : {1, 4})
      Problem(width, rows, 17).check(0, 17);
  for (const int64_t width : {191, 192, 193, 575, 576, 577, 1023, 1024})
    Problem(width, 4, 64).check(0, 64);
}

TEST_F(CodeProducts, EveryNumberOfRows) {
  for (int64_t rows = 1; rows <= 17; ++rows)
    Problem(70, rows, 33).check(0, 33);
}

TEST_F(CodeProducts, EveryPartOfATile) {
  Problem problem(24, 3, kAttentionTileKeys);
  for (int64_t begin = 0; begin < kAttentionTileKeys; begin += begin < 18 ? 1 : 7)
    for (int64_t end = begin + 1; end <= kAttentionTileKeys; end += end < 34 ? 1 : 5)
      problem.check(begin, end);
}

TEST_F(CodeProducts, RowsOfEverySize) {
  for (const float scale : {0x1p-120f, 0x1p-75f, 1e-20f, 1.0f, 1e20f, 0x1p90f})
    for (const float largest : {8.0f, 1e5f}) {
      Problem problem(100, 4, 40);
      for (int64_t row = 0; row < 4; ++row) {
        for (int64_t column = 0; column < 100; ++column)
          problem.value(row, column) *= scale;
        problem.value(row, 17 * row) = (row % 2 == 0 ? largest : -largest) * scale;
      }
      problem.check(0, 40);
    }
  Problem zero(100, 2, 40);
  for (int64_t column = 0; column < 100; ++column)
    zero.value(1, column) = column % 2 == 0 ? 0.0f : -0.0f;
  zero.check(0, 40);
  Problem smallest(100, 1, 40);
  for (int64_t column = 0; column < 100; ++column)
    smallest.value(0, column) = column % 3 == 0 ? 0x1p-149f : -0x1p-147f;
  smallest.check(0, 40);
}

TEST_F(CodeProducts, RefusesInfinitiesAndNaN) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float odd : {NAN, infinity, -infinity})
    for (const int64_t column : {0, 15, 16, 36}) {
      Problem problem(37, 2, 1);
      problem.value(1, column) = odd;
      EXPECT_TRUE(problem.write(0));
      EXPECT_FALSE(problem.write(1)) << odd << " in column " << column;
    }
}

TEST_F(CodeProducts, CanBeForbidden) {
  const float scale = 1;
  AttentionView view;
  view.batches = view.queryHeads = view.kvHeads = view.queryRows = 1;
  view.keyWidth = view.valueWidth = view.totalLength = 16;
  view.keyScales = view.valueScales = &scale;
  const size_t withDigits = attentionBlockBytes(view);
  view.byteProducts = false;
  EXPECT_LT(attentionBlockBytes(view), withDigits);
}

} // namespace
} // namespace kvopt
