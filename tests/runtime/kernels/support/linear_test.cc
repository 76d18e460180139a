// Matrix products as operators compute them: sizes at which the method changes, threads, scratch.
#include "runtime/kernels/support/linear.h"

#include "runtime/kernels/support/packed_product.h"
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace kernels;
using namespace runtime;

namespace {

double unitOf(ElementType element) {
  return element == ElementType::Float16 ? 0x1p-11 : element == ElementType::BFloat16 ? 0x1p-8 : 0;
}

/// y = A W by one of the operators; W is [K,N], or [N,K] for Gemm with transB.
struct Layer {
  ElementType element = ElementType::Float;
  int64_t m = 1, k = 1, n = 1;
  bool transB = false;
  TestTensor a, w;

  Layer(ElementType type, int64_t rows, int64_t inner, int64_t columns, bool transposed)
      : element(type), m(rows), k(inner), n(columns), transB(transposed),
        a(randomTensor(type, {rows, inner}, 1)),
        w(randomTensor(type, transposed ? Extents{columns, inner} : Extents{inner, columns}, 2)) {}

  KernelResult run(unsigned threads) const { return run(a, threads); }
  KernelResult run(const TestTensor& rows, unsigned threads) const {
    KernelCall call(transB ? "Gemm" : "MatMul");
    call.in(rows).in(w).threads(threads);
    if (transB)
      call.attr("transB", 1);
    return call.run();
  }

  /// Compares with the double loop: the error of k roundings, and one of the result.
  void check(const KernelResult& result) const {
    ASSERT_EQ(result.error, "");
    const TestTensor& y = result.outputs[0];
    ASSERT_EQ(y.shape(), (Extents{m, n}));
    const double roundings = static_cast<double>(k + 1) * 0x1p-24;
    const std::vector<double> left = a.values(), right = w.values();
    const int64_t byInner = transB ? 1 : n, byColumn = transB ? k : 1;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t x = 0; x < k; ++x) {
          const double term = left[static_cast<size_t>(i * k + x)] *
                              right[static_cast<size_t>(x * byInner + j * byColumn)];
          sum += term;
          magnitude += std::abs(term);
        }
        const double bound = roundings / (1 - roundings) * magnitude * (1 + unitOf(element)) +
                             unitOf(element) * std::abs(sum) +
                             (element == ElementType::Float16 ? 0x1p-25 : 0);
        ASSERT_NEAR(y.get(i * n + j), sum, bound)
            << m << ' ' << k << ' ' << n << " at " << i << ' ' << j;
      }
  }
};

const ElementType floatTypes[] = {ElementType::Float, ElementType::Float16, ElementType::BFloat16};

TEST(Linear, RowsWhereTheMethodChanges) {
  for (const ElementType element : floatTypes)
    for (const bool transB : {false, true}) {
      for (const int64_t m : {1, 2, 15, 16, 17, 33})
        for (const int64_t k : {1, 255, 257})
          for (const int64_t n : {1, 127, 129}) {
            const Layer layer(element, m, k, n, transB);
            layer.check(layer.run(2));
          }
      const Layer tiles(element, 513, 20, 130, transB);
      tiles.check(tiles.run(3));
      const Layer wide(element, 18, 260, 2049, transB);
      wide.check(wide.run(3));
      // Large enough for strips, with last tiles and strips that are smaller.
      const Layer strips(element, 300, 290, 330, transB);
      strips.check(strips.run(2));
    }
}

/// Of many rows, too, if they are computed strip by strip.
TEST(Linear, ManyRowsGiveTheSameBitsInAnyNumber) {
  using Kind = PackedProduct::Kind;
  if (!PackedProduct::create(Kind::Floats, 17, 1000, 64))
    GTEST_SKIP() << "oneDNN does not read strips on this CPU";
  for (const bool transB : {false, true}) {
    const Layer layer(ElementType::Float, 300, 1000, 700, transB);
    const KernelResult all = layer.run(2);
    ASSERT_TRUE(all.ok());
    for (const int64_t rows : {17, 64, 257}) {
      TestTensor first(ElementType::Float, {rows, layer.k});
      std::memcpy(first.data(), layer.a.data(), first.bytes());
      const KernelResult some = layer.run(first, 3);
      ASSERT_TRUE(some.ok());
      EXPECT_EQ(std::memcmp(some.outputs[0].data(), all.outputs[0].data(), some.outputs[0].bytes()),
                0)
          << rows << " rows";
    }
  }
}

TEST(Linear, ResultsDoNotDependOnThreads) {
  for (const ElementType element : floatTypes)
    for (const bool transB : {false, true})
      for (const int64_t m : {1, 5, 16, 17, 600}) {
        const Layer layer(element, m, 300, 1000, transB);
        const KernelResult one = layer.run(1);
        ASSERT_TRUE(one.ok());
        for (const unsigned threads : {2u, 3u, 8u, 64u}) {
          const KernelResult many = layer.run(threads);
          ASSERT_TRUE(many.ok());
          EXPECT_TRUE(one.outputs[0].sameBytes(many.outputs[0])) << m << " rows, " << threads;
        }
      }
}

TEST(Linear, AFewRowsGiveTheBitsOfEachAlone) {
  for (const ElementType element : floatTypes)
    for (const bool transB : {false, true}) {
      const Layer layer(element, 16, 1100, 300, transB);
      const KernelResult all = layer.run(2);
      ASSERT_TRUE(all.ok());
      for (const int64_t row : {0, 7, 15}) {
        TestTensor alone(element, {1, layer.k});
        std::memcpy(alone.data(), layer.a.data() + static_cast<size_t>(row) * alone.bytes(),
                    alone.bytes());
        const KernelResult one = layer.run(alone, 3);
        ASSERT_TRUE(one.ok());
        EXPECT_EQ(
            std::memcmp(one.outputs[0].data(),
                        all.outputs[0].data() + static_cast<size_t>(row) * one.outputs[0].bytes(),
                        one.outputs[0].bytes()),
            0)
            << "row " << row;
      }
    }
}

/// f32 copies of activations and results, a strip and a tile for each thread or a row's sums of
/// blocks; none of the weights.
TEST(Linear, ScratchDoesNotGrowWithTheWeights) {
  for (const bool transB : {false, true})
    for (const int64_t m : {1, 16, 40}) {
      const Layer layer(ElementType::Float16, m, 1024, 1024, transB);
      const KernelResult result = layer.run(2);
      ASSERT_TRUE(result.ok());
      const size_t tiles = m > 16 ? size_t{2} << 20 : 0;
      const size_t sums = m == 1 ? 4 * 1024 / 256 * 1024 : 0;
      EXPECT_LE(result.scratchBytes, static_cast<size_t>(4 * m * (1024 + 1024)) + tiles + sums);
    }
}

TEST(Linear, BatchesOfFewAndManyRows) {
  for (const ElementType element : floatTypes)
    for (const int64_t m : {1, 16, 20})
      for (const bool transA : {false, true}) {
        const int64_t k = 19, n = 37;
        const TestTensor a =
            randomTensor(element, transA ? Extents{2, 1, k, m} : Extents{2, 1, m, k}, 1);
        const TestTensor b = randomTensor(element, {3, k, n}, 2);
        std::vector<double> expected;
        for (int64_t batch = 0; batch < 6; ++batch)
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              double sum = 0;
              for (int64_t x = 0; x < k; ++x)
                sum += a.get(batch / 3 * m * k + (transA ? x * m + i : i * k + x)) *
                       b.get(batch % 3 * k * n + x * n + j);
              expected.push_back(2 * sum);
            }
        const KernelResult result = KernelCall("com.microsoft::FusedMatMul")
                                        .in(a)
                                        .in(b)
                                        .attr("alpha", 2.0)
                                        .attr("transA", transA ? 1 : 0)
                                        .threads(2)
                                        .run();
        // Sums of 19 products below 1, doubled: k roundings in f32 and one of the result.
        const double largest = 2.0 * static_cast<double>(k);
        expectTensor(result, {2, 3, m, n}, expected,
                     largest * (20 * 0x1p-24 * 1.01 + unitOf(element)));
      }
}

TEST(Linear, QuantizedRowsWhereTheMethodChanges) {
  const int64_t k = 300, n = 70, blockSize = 32, blocks = (k + blockSize - 1) / blockSize;
  TestTensor numbers(ElementType::UInt8, {n, blocks, blockSize / 2});
  std::mt19937 random(3);
  for (int64_t i = 0; i < numbers.count(); ++i)
    numbers.set(i, static_cast<double>(random() % 256));
  const TestTensor scales = randomTensor(ElementType::Float, {n * blocks}, 4, 0.1);
  const TestTensor all = randomTensor(ElementType::Float, {530, k}, 5);
  const std::vector<double> codes = numbers.values(), factors = scales.values(), x = all.values();
  for (const int64_t m : {1, 2, 16, 17, 530}) {
    TestTensor a(ElementType::Float, {m, k});
    std::memcpy(a.data(), all.data(), a.bytes());
    const auto run = [&](unsigned threads) {
      return KernelCall("com.microsoft::MatMulNBits")
          .in(a)
          .in(numbers)
          .in(scales)
          .attr("K", static_cast<int>(k))
          .attr("N", static_cast<int>(n))
          .attr("block_size", static_cast<int>(blockSize))
          .threads(threads)
          .run();
    };
    const KernelResult one = run(1);
    ASSERT_EQ(one.error, "");
    const auto at = [](int64_t index) { return static_cast<size_t>(index); };
    for (const unsigned threads : {2u, 7u}) {
      const KernelResult many = run(threads);
      ASSERT_TRUE(many.ok());
      EXPECT_TRUE(one.outputs[0].sameBytes(many.outputs[0])) << m << " rows, " << threads;
    }
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t inner = 0; inner < k; ++inner) {
          const auto byte = static_cast<unsigned>(codes[at((j * blocks * blockSize + inner) / 2)]);
          const double q = inner % 2 == 0 ? byte & 15 : byte >> 4;
          const double s = factors[at(j * blocks + inner / blockSize)] * x[at(i * k + inner)];
          sum += (q - 8) * s;
          magnitude += (q + 8) * std::abs(s);
        }
        // Two roundings of each weight, where it is expanded, beside those of the sum.
        ASSERT_NEAR(one.outputs[0].get(i * n + j), sum,
                    static_cast<double>(k + 3) * 0x1p-24 * 1.01 * magnitude)
            << m << " rows, at " << i << ' ' << j;
      }
  }
}

} // namespace
} // namespace kvopt
