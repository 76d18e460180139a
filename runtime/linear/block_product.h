// Products of few rows of activations with weights stored as small integers in blocks, without
// expanding the weights in memory.
#pragma once

#include "runtime/simd/float_storage.h"

#include <cstddef>
#include <cstdint>

namespace kvopt::linear {

/// W [columns,inner] in 2, 4 or 8 bits: W[n,k] = (q[n,k] - z[n,b]) * s[n,b] with b = k / blockSize.
/// A row of q consists of `blocks` blocks of blockSize numbers; the last block is padded with
/// arbitrary numbers. The first of the numbers in a byte is in its lowest bits.
struct BlockWeights {
  enum class Zeros : uint8_t {
    middle, ///< z = 2^(bits-1)
    packed, ///< like q: ceil(blocks * bits / 8) bytes per row
    floats, ///< [columns,blocks] in `zeroStorage`
  };

  int64_t columns = 0;
  int64_t inner = 0;
  int64_t bits = 0;
  int64_t blockSize = 0; ///< a multiple of 16
  int64_t blocks = 0;    ///< ceil(inner / blockSize)
  const uint8_t* numbers = nullptr;
  simd::FloatStorage scaleStorage = simd::FloatStorage::f32;
  const void* scales = nullptr; ///< [columns,blocks]
  Zeros zeroKind = Zeros::middle;
  simd::FloatStorage zeroStorage = simd::FloatStorage::f32;
  const void* zeros = nullptr;

  int64_t rowBytes() const { return blocks * blockSize * bits / 8; }
  int64_t zeroRowBytes() const { return (blocks * bits + 7) / 8; }
  /// The scale s[n,b].
  float scale(int64_t column, int64_t block) const;
  /// The zero point z[n,b].
  float zero(int64_t column, int64_t block) const;
  /// Computes W[n,k] for k in [begin,end), each product rounded once.
  void expand(int64_t column, int64_t begin, int64_t end, float* out) const;
};

/// Number of floats that `packActivations` writes for `rows` rows.
int64_t packedActivationFloats(const BlockWeights& weights, int64_t rows);

/// Converts rows of activations, with stride aStride, to the order that `multiplyBlocks` reads.
void packActivations(const BlockWeights& weights, const float* a, int64_t aStride, int64_t rows,
                     float* packed);

/// out[m,n] = sum_k a[m,k] W[n,k] for columns [begin,end) and up to fewRows packed rows of
/// activations; outStride is the row stride of `out`. The sum is
///
///   out = sum_P sum_w s(w) * (sum_i q(w,i) a(w,i) - z(w) * sum_i a(w,i))
///
/// over parts P of 1024 numbers, words w of 32 bits and the numbers i of a word: words in one lane
/// of a vector from left to right, then over the lanes. Numbers and scales are exact. Bits depend
/// on the same things as in `multiplyRows`. Activations below 2^-100 lose bits.
void multiplyBlocks(const BlockWeights& weights, const float* packed, int64_t rows, int64_t begin,
                    int64_t end, float* out, int64_t outStride);

} // namespace kvopt::linear
