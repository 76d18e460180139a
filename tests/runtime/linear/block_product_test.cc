// Products of few rows with weights in blocks of small integers on every SIMD target, against a
// double loop over the dequantized weights.
#include "runtime/linear/block_product.h"

#include "support/half.h"
#include "tests/runtime/linear/guarded_pages.h"
#include "tests/runtime/simd/targets.h"

#include <cmath>
#include <fmt/format.h>
#include <random>
#include <vector>

namespace kvopt {
using namespace linear;
using namespace simd;

namespace {

using Zeros = BlockWeights::Zeros;

/// A problem whose numbers end where the memory does.
class Problem {
public:
  Problem(int64_t mRows, int64_t k, int64_t n, int64_t bits, int64_t blockSize, Zeros zeroKind,
          FloatStorage storage)
      : rows(mRows) {
    w.columns = n;
    w.inner = k;
    w.bits = bits;
    w.blockSize = blockSize;
    w.blocks = (k + blockSize - 1) / blockSize;
    w.zeroKind = zeroKind;
    w.scaleStorage = w.zeroStorage = storage;
    std::mt19937 random(static_cast<uint32_t>(k * 31 + n * 7 + bits));
    std::uniform_real_distribution<float> uniform(-1, 1);
    a.resize(static_cast<size_t>(rows * k));
    for (float& value : a)
      value = uniform(random);
    numbers.resize(static_cast<size_t>(n * w.rowBytes()));
    for (uint8_t& byte : numbers)
      byte = static_cast<uint8_t>(random());
    packedZeros.resize(static_cast<size_t>(n * w.zeroRowBytes()));
    for (uint8_t& byte : packedZeros)
      byte = static_cast<uint8_t>(random());
    const auto fill = [&](std::vector<float>& floats, std::vector<uint16_t>& halves, float size) {
      for (int64_t i = 0; i < n * w.blocks; ++i) {
        floats.push_back(size * uniform(random));
        halves.push_back(storage == FloatStorage::f16 ? floatToF16(floats.back())
                                                      : floatToBf16(floats.back()));
      }
    };
    fill(scaleFloats, scaleHalves, 0.1f);
    fill(zeroFloats, zeroHalves, 10.0f);
  }

  /// All columns, in pieces of `width`.
  std::vector<float> run(int64_t width) {
    static GuardedPages numberPages(1 << 20), scalePages(1 << 18), zeroPages(1 << 18);
    const bool isFloat = w.scaleStorage == FloatStorage::f32;
    w.numbers = numberPages.place<uint8_t>(numbers, false);
    w.scales = isFloat ? static_cast<const void*>(scalePages.place<float>(scaleFloats, false))
                       : scalePages.place<uint16_t>(scaleHalves, false);
    if (w.zeroKind == Zeros::packed)
      w.zeros = zeroPages.place<uint8_t>(packedZeros, false);
    else if (w.zeroKind == Zeros::floats)
      w.zeros = isFloat ? static_cast<const void*>(zeroPages.place<float>(zeroFloats, false))
                        : zeroPages.place<uint16_t>(zeroHalves, false);
    std::vector<float> packed(static_cast<size_t>(packedActivationFloats(w, rows)), NAN);
    packActivations(w, a.data(), w.inner, rows, packed.data());
    std::vector<float> out(static_cast<size_t>(rows * w.columns), NAN);
    for (int64_t begin = 0; begin < w.columns; begin += width)
      multiplyBlocks(w, packed.data(), rows, begin, std::min(begin + width, w.columns), out.data(),
                     w.columns);
    return out;
  }

  /// Roundings along the longest chain of block_product.h's formula: within a word and of its sum
  /// of activations, of the words in a lane, over at most 16 lanes, over the parts.
  double relativeError() const {
    const int64_t words = w.inner * w.bits / 32 + 1;
    const double depth =
        static_cast<double>(2 * (32 / w.bits) + 4 + words + 16 + w.inner / 1024 + 1);
    return depth * 0x1p-24 / (1 - depth * 0x1p-24);
  }

  void check(const std::vector<float>& out) const {
    std::vector<float> expanded(static_cast<size_t>(w.inner));
    for (int64_t n = 0; n < w.columns; ++n) {
      w.expand(n, 0, w.inner, expanded.data());
      for (int64_t m = 0; m < rows; ++m) {
        double exact = 0, magnitude = 0;
        for (int64_t k = 0; k < w.inner; ++k) {
          const int64_t block = k / w.blockSize;
          const int64_t bit = k * w.bits;
          const uint8_t byte = numbers[static_cast<size_t>(n * w.rowBytes() + bit / 8)];
          const double q = (byte >> (bit % 8)) & ((1 << w.bits) - 1);
          const double s = w.scale(n, block), z = w.zero(n, block);
          const double x = a[static_cast<size_t>(m * w.inner + k)];
          exact += (q - z) * s * x;
          magnitude += (q + std::abs(z)) * std::abs(s * x);
          if (m == 0) {
            EXPECT_NEAR(expanded[static_cast<size_t>(k)], (q - z) * s,
                        std::abs((q - z) * s) * 0x1p-22);
          }
        }
        ASSERT_NEAR(out[static_cast<size_t>(m * w.columns + n)], exact, relativeError() * magnitude)
            << name() << " element " << m << ' ' << n;
      }
    }
  }

  std::string name() const {
    return fmt::format("m {} k {} n {} bits {} block {} zeros {} storage {}", rows, w.inner,
                       w.columns, w.bits, w.blockSize, static_cast<int>(w.zeroKind),
                       static_cast<int>(w.scaleStorage));
  }

  int64_t rows;

private:
  BlockWeights w;
  std::vector<float> a, scaleFloats, zeroFloats;
  std::vector<uint16_t> scaleHalves, zeroHalves;
  std::vector<uint8_t> numbers, packedZeros;
};

template <class Body> void forEachKind(Body body) {
  for (const int64_t bits : {2, 4, 8})
    for (const Zeros zeros : {Zeros::middle, Zeros::packed, Zeros::floats})
      body(bits, zeros);
}

TEST(BlockProduct, SizesAroundWordsAndVectors) {
  forEachKind([](int64_t bits, Zeros zeros) {
    for (const int64_t k : {1, 2, 7, 15, 16, 17, 31, 33, 64, 127, 128, 129, 255, 257})
      for (const int64_t n : {1, 2, 3, 4, 5, 9})
        for (const int64_t m : {1, 3}) {
          Problem problem(m, k, n, bits, 16, zeros, FloatStorage::f32);
          forEachSimdTarget([&] { problem.check(problem.run(n)); });
        }
  });
}

TEST(BlockProduct, BlockSizesAndParts) {
  forEachKind([](int64_t bits, Zeros zeros) {
    for (const int64_t blockSize : {16, 32, 48, 64, 128, 256, 80, 2048})
      for (const int64_t k : {100, 1024, 1025, 2113})
        for (const FloatStorage storage :
             {FloatStorage::f32, FloatStorage::f16, FloatStorage::bf16}) {
          Problem problem(k == 100 ? 1 : 5, k, 6, bits, blockSize, zeros, storage);
          forEachSimdTarget([&] { problem.check(problem.run(6)); });
        }
  });
}

TEST(BlockProduct, ARowKnowsNothingOfOtherRowsAndColumns) {
  forEachKind([](int64_t bits, Zeros zeros) {
    Problem problem(16, 1100, 37, bits, 32, zeros, FloatStorage::f32);
    forEachSimdTarget([&] {
      problem.rows = 16;
      const std::vector<float> whole = problem.run(37);
      problem.check(whole);
      for (const int64_t width : {1, 5, 16})
        ASSERT_EQ(problem.run(width), whole) << problem.name() << " width " << width;
      for (const int64_t rows : {1, 2, 7}) {
        problem.rows = rows;
        const std::vector<float> part = problem.run(37);
        for (size_t i = 0; i < part.size(); ++i)
          ASSERT_EQ(part[i], whole[i]) << problem.name() << " element " << i;
      }
    });
  });
}

} // namespace
} // namespace kvopt
