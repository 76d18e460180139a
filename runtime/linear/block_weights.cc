// Single numbers and rows of weights stored in blocks.
#include "runtime/linear/block_product.h"

#include "support/half.h"

#include <algorithm>

namespace kvopt::linear {
using namespace simd;

namespace {

float element(const void* base, int64_t index, FloatStorage storage) {
  if (storage == FloatStorage::f32)
    return static_cast<const float*>(base)[index];
  const uint16_t bits = static_cast<const uint16_t*>(base)[index];
  return storage == FloatStorage::f16 ? f16ToFloat(bits) : bf16ToFloat(bits);
}

/// Number `index` of those packed at `bytes`.
template <int Bits> float number(const uint8_t* bytes, int64_t index) {
  constexpr int64_t perByte = 8 / Bits;
  const auto shift = static_cast<unsigned>(index % perByte * Bits);
  return static_cast<float>((bytes[index / perByte] >> shift) & ((1u << Bits) - 1));
}

template <int Bits>
void expandNumbers(const uint8_t* bytes, int64_t begin, int64_t end, float scale, float zero,
                   float* out) {
  constexpr int64_t perByte = 8 / Bits;
  int64_t i = begin;
  for (; i < end && i % perByte != 0; ++i)
    *out++ = (number<Bits>(bytes, i) - zero) * scale;
  for (; i + perByte <= end; i += perByte, out += perByte) {
    const unsigned byte = bytes[i / perByte];
    for (int64_t j = 0; j < perByte; ++j) {
      const unsigned bits = (byte >> (j * Bits)) & ((1u << Bits) - 1);
      out[j] = (static_cast<float>(bits) - zero) * scale;
    }
  }
  for (; i < end; ++i)
    *out++ = (number<Bits>(bytes, i) - zero) * scale;
}

} // namespace

float BlockWeights::scale(int64_t column, int64_t block) const {
  return element(scales, column * blocks + block, scaleStorage);
}

float BlockWeights::zero(int64_t column, int64_t block) const {
  switch (zeroKind) {
  case Zeros::middle:
    return static_cast<float>(1 << (bits - 1));
  case Zeros::floats:
    return element(zeros, column * blocks + block, zeroStorage);
  case Zeros::packed:
    break;
  }
  const uint8_t* row = static_cast<const uint8_t*>(zeros) + column * zeroRowBytes();
  return bits == 2   ? number<2>(row, block)
         : bits == 4 ? number<4>(row, block)
                     : number<8>(row, block);
}

void BlockWeights::expand(int64_t column, int64_t begin, int64_t end, float* out) const {
  const uint8_t* row = numbers + column * rowBytes();
  for (int64_t k = begin; k < end;) {
    const int64_t block = k / blockSize;
    const int64_t last = std::min(end, (block + 1) * blockSize);
    const auto expandBlock = bits == 2   ? expandNumbers<2>
                             : bits == 4 ? expandNumbers<4>
                                         : expandNumbers<8>;
    expandBlock(row, k, last, scale(column, block), zero(column, block), out + (k - begin));
    k = last;
  }
}

} // namespace kvopt::linear
