// Strips hold the weights that other functions compute one by one, on every SIMD target.
#include "runtime/linear/pack_strips.h"

#include "support/half.h"
#include "tests/runtime/linear/guarded_pages.h"
#include "tests/runtime/simd/targets.h"

#include <cmath>
#include <random>
#include <vector>

namespace kvopt {
using namespace linear;
using namespace simd;

namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

/// Element [k,n] of strips for columns from `begin` on.
float stripAt(const std::vector<float>& strips, int64_t inner, int64_t k, int64_t n) {
  const int64_t padded = stripFloats(inner, 1) / stripColumns;
  return strips[at(n / stripColumns * padded * stripColumns + k * stripColumns + n % stripColumns)];
}

/// Every element of the strips: W where it is within, otherwise 0.
template <class Weight>
void expectStrips(const std::vector<float>& strips, int64_t inner, int64_t columns, Weight weight) {
  const int64_t padded = stripFloats(inner, 1) / stripColumns;
  const int64_t width = (columns + stripColumns - 1) / stripColumns * stripColumns;
  for (int64_t k = 0; k < padded; ++k)
    for (int64_t n = 0; n < width; ++n)
      ASSERT_EQ(stripAt(strips, inner, k, n), k < inner && n < columns ? weight(k, n) : 0.0f)
          << k << ' ' << n << " of " << inner << ' ' << columns;
}

TEST(PackStrips, FloatsInBothOrders) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  static GuardedPages pages(1 << 20);
  for (const FloatStorage storage : {FloatStorage::f32, FloatStorage::f16, FloatStorage::bf16})
    for (const bool transposed : {false, true})
      for (const int64_t inner : {1, 15, 16, 33, 130})
        for (const int64_t columns : {1, 63, 64, 100, 200}) {
          std::vector<float> floats;
          std::vector<uint16_t> halves;
          for (int64_t i = 0; i < inner * columns; ++i) {
            const float value = uniform(random);
            halves.push_back(storage == FloatStorage::f16 ? floatToF16(value) : floatToBf16(value));
            floats.push_back(storage == FloatStorage::f32   ? value
                             : storage == FloatStorage::f16 ? f16ToFloat(halves.back())
                                                            : bf16ToFloat(halves.back()));
          }
          const void* weights = storage == FloatStorage::f32
                                    ? static_cast<const void*>(pages.place<float>(floats, false))
                                    : pages.place<uint16_t>(halves, false);
          const int64_t begin = columns > 64 ? 64 : 0;
          forEachSimdTarget([&] {
            std::vector<float> strips(at(stripFloats(inner, columns - begin)), NAN);
            packStrips(weights, storage, transposed, transposed ? inner : columns, inner, begin,
                       columns, strips.data());
            expectStrips(strips, inner, columns - begin, [&](int64_t k, int64_t n) {
              return floats[at(transposed ? (begin + n) * inner + k : k * columns + begin + n)];
            });
          });
        }
}

TEST(PackStrips, BlocksOfEveryKind) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1, 1);
  static GuardedPages pages(1 << 20);
  for (const int64_t bits : {2, 4, 8})
    for (const auto zeros :
         {BlockWeights::Zeros::middle, BlockWeights::Zeros::packed, BlockWeights::Zeros::floats})
      for (const int64_t blockSize : {16, 48, 128})
        for (const int64_t inner : {1, 17, 100, 257})
          for (const int64_t columns : {1, 70}) {
            BlockWeights w;
            w.columns = columns;
            w.inner = inner;
            w.bits = bits;
            w.blockSize = blockSize;
            w.blocks = (inner + blockSize - 1) / blockSize;
            w.zeroKind = zeros;
            std::vector<uint8_t> numbers(at(columns * w.rowBytes()));
            std::vector<uint8_t> packedZeros(at(columns * w.zeroRowBytes()));
            for (uint8_t& byte : numbers)
              byte = static_cast<uint8_t>(random());
            for (uint8_t& byte : packedZeros)
              byte = static_cast<uint8_t>(random());
            std::vector<float> scales(at(columns * w.blocks)), floatZeros(scales.size());
            for (float& scale : scales)
              scale = uniform(random);
            for (float& zero : floatZeros)
              zero = 7 * uniform(random);
            w.numbers = pages.place<uint8_t>(numbers, false);
            w.scales = scales.data();
            w.zeros = zeros == BlockWeights::Zeros::packed
                          ? static_cast<const void*>(packedZeros.data())
                          : floatZeros.data();
            std::vector<float> expanded(at(columns * inner));
            for (int64_t n = 0; n < columns; ++n)
              w.expand(n, 0, inner, expanded.data() + n * inner);
            forEachSimdTarget([&] {
              std::vector<float> strips(at(stripFloats(inner, columns)), NAN);
              packStrips(w, 0, columns, strips.data());
              expectStrips(strips, inner, columns,
                           [&](int64_t k, int64_t n) { return expanded[at(n * inner + k)]; });
            });
          }
}

} // namespace
} // namespace kvopt
