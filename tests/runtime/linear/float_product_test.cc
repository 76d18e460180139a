// Products of few rows with floating-point weights on every SIMD target, against a double loop.
#include "runtime/linear/float_product.h"

#include "support/half.h"
#include "tests/runtime/linear/guarded_pages.h"
#include "tests/runtime/simd/rounding_bound.h"
#include "tests/runtime/simd/targets.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <random>
#include <vector>

namespace kvopt {
using namespace linear;
using namespace simd;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

enum class Layout { Columns, Rows };

/// The numbers of a problem; those between rows, `gap` of them in the weights, are NaN.
class Problem {
public:
  Problem(int64_t mRows, int64_t kInner, int64_t nColumns, Layout weightLayout,
          FloatStorage weightStorage, int64_t gap = 3)
      : m(mRows), k(kInner), n(nColumns), layout(weightLayout), storage(weightStorage) {
    std::mt19937 random(static_cast<uint32_t>(m * 7919 + k * 131 + n));
    std::uniform_real_distribution<float> uniform(-1, 1);
    aStride = k + 1;
    a.assign(static_cast<size_t>(m * aStride), kNan);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t x = 0; x < k; ++x)
        a[index(i * aStride + x)] = uniform(random);
    const int64_t rows = layout == Layout::Columns ? k : n;
    const int64_t width = layout == Layout::Columns ? n : k;
    stride = width + gap;
    // No padding behind the last row: what follows it belongs to somebody else.
    const size_t elements = rows == 0 ? 0 : index((rows - 1) * stride + width);
    weights.assign(elements, kNan);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t x = 0; x < width; ++x)
        weights[index(row * stride + x)] = rounded(uniform(random));
  }

  float weight(int64_t x, int64_t column) const {
    return weights[index(layout == Layout::Columns ? x * stride + column : column * stride + x)];
  }

  /// Runs columns [begin,end) on memory with nothing around it; `offset` bytes off alignment.
  std::vector<float> run(int64_t begin, int64_t end, bool first) const {
    FloatProduct p;
    p.rows = m;
    p.inner = k;
    p.columns = n;
    static GuardedPages activationPages(1 << 20), weightPages(1 << 22);
    p.a = activationPages.place<float>(a, first);
    p.aStride = aStride;
    p.storage = storage;
    p.weightStride = stride;
    if (storage == FloatStorage::f32) {
      p.weights = weightPages.place<float>(weights, first);
    } else {
      std::vector<uint16_t> bits;
      for (const float value : weights)
        bits.push_back(storage == FloatStorage::f16 ? floatToF16(value) : floatToBf16(value));
      p.weights = weightPages.place<uint16_t>(bits, first);
    }
    std::vector<float> out(static_cast<size_t>(m * n + 2), -7.0f);
    p.out = out.data() + 1;
    p.outStride = n;
    (layout == Layout::Columns ? multiplyColumns : multiplyRows)(p, begin, end);
    EXPECT_EQ(out.front(), -7.0f);
    EXPECT_EQ(out.back(), -7.0f);
    return {out.begin() + 1, out.end() - 1};
  }

  /// Exact sums and the sums of magnitudes, by element.
  std::vector<std::pair<double, double>> exact() const {
    std::vector<std::pair<double, double>> result;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t x = 0; x < k; ++x) {
          const double term = double{a[index(i * aStride + x)]} * double{weight(x, j)};
          sum += term;
          magnitude += std::abs(term);
        }
        result.push_back({sum, magnitude});
      }
    return result;
  }

  void check(const std::vector<float>& out,
             const std::vector<std::pair<double, double>>& expected) const {
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_NEAR(out[i], expected[i].first,
                  roundings(static_cast<double>(k) + 1) * expected[i].second)
          << name() << " element " << i;
  }

  std::string name() const {
    return fmt::format("m {} k {} n {} layout {} storage {}", m, k, n, static_cast<int>(layout),
                       static_cast<int>(storage));
  }

  int64_t m, k, n;

private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }
  float rounded(float value) const {
    return storage == FloatStorage::f16    ? f16ToFloat(floatToF16(value))
           : storage == FloatStorage::bf16 ? bf16ToFloat(floatToBf16(value))
                                           : value;
  }

  Layout layout;
  FloatStorage storage;
  int64_t aStride = 0, stride = 0;
  std::vector<float> a, weights;
};

template <class Body> void forEachKind(Body body) {
  for (const Layout layout : {Layout::Columns, Layout::Rows})
    for (const FloatStorage storage : {FloatStorage::f32, FloatStorage::f16, FloatStorage::bf16})
      body(layout, storage);
}

void checkOnAllTargets(int64_t m, int64_t k, int64_t n, Layout layout, FloatStorage storage,
                       int64_t gap = 3) {
  const Problem problem(m, k, n, layout, storage, gap);
  const auto expected = problem.exact();
  forEachSimdTarget([&] {
    problem.check(problem.run(0, n, false), expected);
    problem.check(problem.run(0, n, true), expected);
  });
}

TEST(FloatProduct, SizesAroundVectors) {
  forEachKind([](Layout layout, FloatStorage storage) {
    for (const int64_t m : {1, 2, 3, 4, 7, 16})
      for (int64_t k = 0; k <= 33; k += k < 9 || k > 14 ? 1 : 3)
        for (int64_t n = 0; n <= 33; n += n < 9 || n > 14 ? 1 : 3)
          checkOnAllTargets(m, k, n, layout, storage);
  });
}

TEST(FloatProduct, SizesAroundBlocksAndTiles) {
  forEachKind([](Layout layout, FloatStorage storage) {
    for (const int64_t k : {255, 256, 257, 513, 1023, 1024, 1025, 2057})
      checkOnAllTargets(3, k, 37, layout, storage);
    for (const int64_t n : {63, 64, 65, 129, 255, 256, 257, 1023, 1366, 4095, 4097})
      for (const int64_t m : {1, 3, 16})
        checkOnAllTargets(m, 19, n, layout, storage);
    for (const int64_t n : {32767, 32768, 32805, 65537})
      checkOnAllTargets(1, 9, n, layout, storage);
  });
}

/// One row of activations may go through weights without gaps in another way.
TEST(FloatProduct, OneRowWithWeightsWithoutGaps) {
  forEachKind([](Layout layout, FloatStorage storage) {
    for (const int64_t k : {1, 4, 19, 257, 1030})
      for (const int64_t n : {1, 31, 64, 129, 1025, 4096, 4099})
        if (k * n < 1 << 20)
          checkOnAllTargets(1, k, n, layout, storage, 0);
  });
}

TEST(FloatProduct, ARowKnowsNothingOfOtherRowsAndColumns) {
  forEachKind([](Layout layout, FloatStorage storage) {
    const Problem problem(16, 1100, 83, layout, storage);
    forEachSimdTarget([&] {
      const std::vector<float> whole = problem.run(0, problem.n, false);
      for (const int64_t m : {1, 2, 5, 8}) {
        Problem fewer = problem;
        fewer.m = m;
        const std::vector<float> part = fewer.run(0, problem.n, false);
        for (size_t i = 0; i < part.size(); ++i)
          ASSERT_EQ(part[i], whole[i]) << problem.name() << " rows " << m << " element " << i;
      }
      for (const int64_t width : {1, 3, 16, 40}) {
        for (int64_t begin = 0; begin < problem.n; begin += width) {
          const int64_t end = std::min(begin + width, problem.n);
          const std::vector<float> part = problem.run(begin, end, false);
          for (size_t i = 0; i < part.size(); ++i) {
            const auto column = static_cast<int64_t>(i) % problem.n;
            const bool isComputed = column >= begin && column < end;
            ASSERT_EQ(part[i], isComputed ? whole[i] : -7.0f)
                << problem.name() << " from " << begin << " width " << width << " element " << i;
          }
        }
      }
    });
  });
}

/// The products of infinities and NaN stay in their own elements.
TEST(FloatProduct, SpecialValuesStayInTheirColumn) {
  for (const Layout layout : {Layout::Columns, Layout::Rows})
    forEachSimdTarget([&] {
      const int64_t k = 21, n = 19;
      std::vector<float> a(static_cast<size_t>(2 * k), 1.0f), w(static_cast<size_t>(k * n), 1.0f);
      const auto at = [&](int64_t x, int64_t j) {
        return static_cast<size_t>(layout == Layout::Columns ? x * n + j : j * k + x);
      };
      w[at(20, 3)] = INFINITY;
      w[at(0, 18)] = kNan;
      std::vector<float> out(static_cast<size_t>(2 * n));
      const FloatProduct p{2,          k,
                           n,          a.data(),
                           k,          FloatStorage::f32,
                           w.data(),   layout == Layout::Columns ? n : k,
                           out.data(), n};
      (layout == Layout::Columns ? multiplyColumns : multiplyRows)(p, 0, n);
      for (int64_t i = 0; i < 2 * n; ++i) {
        const float value = out[static_cast<size_t>(i)];
        if (i % n == 3)
          EXPECT_EQ(value, INFINITY);
        else if (i % n == 18)
          EXPECT_TRUE(std::isnan(value));
        else
          EXPECT_EQ(value, 21.0f) << i;
      }
    });
}

} // namespace
} // namespace kvopt
