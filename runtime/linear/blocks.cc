// Few rows times weights stored in blocks of small integers. The lanes of a vector hold words of 32
// bits, whose numbers are extracted one after another. A number keeps its position in the word,
// which multiplies it by a power of two; its activation is divided by the same power.
#include "runtime/linear/block_product.h"
#include "runtime/linear/float_product.h"

#include <cassert>
#include <cstring>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/linear/blocks.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/linear/block_parts-inl.h"
#include "runtime/linear/prefetch-inl.h"
#include "runtime/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::linear::HWY_NAMESPACE {
using namespace simd;
using namespace simd::HWY_NAMESPACE;
namespace {

using U32Vec = hn::Vec<U32Tag>;

/// Number of rows of W whose parts are read again for further rows of activations.
constexpr size_t kPanelColumns = 256;

/// Rows of W times packed rows of activations.
struct Product {
  const BlockWeights& weights;
  Layout layout;
  const float* packed;
  size_t rows;
  float* out;
  size_t outStride;
};

/// Values of the words of a part's vector, starting at values[0].
template <Spread S> HWY_INLINE F32Vec spread(const float* values, const int32_t* lanesToValues) {
  const F32Tag f32;
  if constexpr (S == Spread::one)
    return hn::Set(f32, *values);
  else if constexpr (S == Spread::uneven)
    return hn::LoadU(f32, values);
  else
    return hn::TableLookupLanes(hn::LoadU(f32, values), hn::SetTableIndices(f32, lanesToValues));
}

/// A vector of words. Words from `count` on are zero.
HWY_INLINE U32Vec loadWords(const uint8_t* from, size_t count) {
  const U32Tag u32;
#if HWY_TARGET != HWY_SCALAR
  if (HWY_LIKELY(count >= hn::Lanes(u32))) {
    const hn::Repartition<uint8_t, U32Tag> bytes;
    return hn::BitCast(u32, hn::LoadU(bytes, from));
  }
#endif
  HWY_ALIGN uint32_t buffer[kMaxLanes] = {};
  std::memcpy(buffer, from, 4 * HWY_MIN(count, hn::Lanes(u32)));
  return hn::Load(u32, buffer);
}

/// Number `Step` of each word, divided by fieldFactor.
template <int Bits, int Step> HWY_INLINE F32Vec numbersOf(U32Vec words) {
  const hn::RebindToSigned<F32Tag> i32;
  const U32Tag u32;
  if constexpr (Bits * (Step + 1) == 32) // would be negative at its position
    return hn::ConvertTo(F32Tag(), hn::BitCast(i32, hn::ShiftRight<32 - Bits>(words)));
  constexpr uint32_t kMask = ((1u << Bits) - 1) << (Bits * Step % 32);
  return hn::ConvertTo(F32Tag(), hn::BitCast(i32, hn::And(words, hn::Set(u32, kMask))));
}

/// Factor that compensates for a number's position in its word.
float fieldFactor(size_t bits, size_t step) {
  if (bits * (step + 1) == 32)
    return 1.0f;
  return 1.0f / static_cast<float>(uint64_t{1} << (bits * step));
}

/// Adds the products of the words' numbers with `Rows` rows of activations.
template <int Bits, int Rows, int Step = 0>
HWY_INLINE void addNumbers(U32Vec words, const float* HWY_RESTRICT a, size_t stride, F32Vec& t0,
                           F32Vec& t1, F32Vec& t2, F32Vec& t3) {
  const F32Tag f32;
  const auto q = numbersOf<Bits, Step>(words);
  t0 = hn::MulAdd(q, hn::LoadU(f32, a), t0);
  if constexpr (Rows > 1)
    t1 = hn::MulAdd(q, hn::LoadU(f32, a + stride), t1);
  if constexpr (Rows > 2) {
    t2 = hn::MulAdd(q, hn::LoadU(f32, a + 2 * stride), t2);
    t3 = hn::MulAdd(q, hn::LoadU(f32, a + 3 * stride), t3);
  }
  if constexpr (Step + 1 < 32 / Bits)
    addNumbers<Bits, Rows, Step + 1>(words, a + hn::Lanes(f32), stride, t0, t1, t2, t3);
}

/// sum += scale * (t - zero * activations' sum)
HWY_INLINE void addScaled(F32Vec t, F32Vec scale, F32Vec zero, const float* activationSums,
                          F32Vec& sum) {
  t = hn::NegMulAdd(zero, hn::LoadU(F32Tag(), activationSums), t);
  sum = hn::MulAdd(scale, t, sum);
}

/// One row of activations with the same part of four rows of W, which are four memory streams.
template <int Bits, Spread S>
void multiplyQuad(const Product& p, const Part* parts, const Range& range,
                  const int32_t* lanesToValues, float* sums) {
  const F32Tag f32;
  const Layout& layout = p.layout;
  const bool hasZeros = p.weights.zeroKind != BlockWeights::Zeros::middle;
  const auto middle = hn::Set(f32, static_cast<float>(1 << (Bits - 1)));
  const float* a = p.packed + range.firstWord * layout.perWord;
  const float* activationSums = p.packed + layout.activations() + range.firstWord;
  auto s0 = hn::Zero(f32), s1 = s0, s2 = s0, s3 = s0;
  for (size_t v = 0; v < range.vectors; ++v) {
    const size_t word = v * layout.lanes;
    const auto one = [&](const Part& part, F32Vec& sum) HWY_ATTR {
      auto t = hn::Zero(f32), unused = t;
      if constexpr (Bits == 8)
        prefetch<4>(part.words + 4 * word + kPrefetchBytes);
      else
        prefetchStraightAhead(part.words + 4 * word, 4 * word);
      const auto words = loadWords(part.words + 4 * word, part.count - word);
      addNumbers<Bits, 1>(words, a + word * layout.perWord, 0, t, unused, unused, unused);
      const size_t value = v * layout.valuesPerVector;
      const auto scale = spread<S>(part.scale + value, lanesToValues);
      const auto zero = hasZeros ? spread<S>(part.zero + value, lanesToValues) : middle;
      addScaled(t, scale, zero, activationSums + word, sum);
    };
    one(parts[0], s0);
    one(parts[1], s1);
    one(parts[2], s2);
    one(parts[3], s3);
  }
  sumLanes4(s0, s1, s2, s3, sums);
}

/// `Rows` rows of activations, starting at `m`, with a part of one row of W.
template <int Bits, Spread S, int Rows>
void multiplyRows(const Product& p, const Part& part, size_t m, const Range& range,
                  const int32_t* lanesToValues, float* sums) {
  static_assert(Rows == 1 || Rows == 2 || Rows == 4);
  const F32Tag f32;
  const Layout& layout = p.layout;
  const bool hasZeros = p.weights.zeroKind != BlockWeights::Zeros::middle;
  const auto middle = hn::Set(f32, static_cast<float>(1 << (Bits - 1)));
  const size_t stride = layout.rowFloats();
  const float* row = p.packed + m * stride;
  const float* a = row + range.firstWord * layout.perWord;
  const float* activationSums = row + layout.activations() + range.firstWord;
  auto s0 = hn::Zero(f32), s1 = s0, s2 = s0, s3 = s0;
  for (size_t v = 0; v < range.vectors; ++v) {
    const size_t word = v * layout.lanes;
    auto t0 = hn::Zero(f32), t1 = t0, t2 = t0, t3 = t0;
    const auto words = loadWords(part.words + 4 * word, part.count - word);
    addNumbers<Bits, Rows>(words, a + word * layout.perWord, stride, t0, t1, t2, t3);
    const size_t value = v * layout.valuesPerVector;
    const auto scale = spread<S>(part.scale + value, lanesToValues);
    const auto zero = hasZeros ? spread<S>(part.zero + value, lanesToValues) : middle;
    const float* x = activationSums + word;
    addScaled(t0, scale, zero, x, s0);
    if constexpr (Rows > 1)
      addScaled(t1, scale, zero, x + stride, s1);
    if constexpr (Rows > 2) {
      addScaled(t2, scale, zero, x + 2 * stride, s2);
      addScaled(t3, scale, zero, x + 3 * stride, s3);
    }
  }
  sumLanes4(s0, s1, s2, s3, sums);
}

void addSum(const Product& p, size_t m, size_t n, float sum, bool isFirst) {
  float& out = p.out[m * p.outStride + n];
  out = isFirst ? sum : out + sum;
}

/// One row of activations: W is read as four streams, each over a quarter of the range.
template <int Bits, Spread S>
void multiplyOne(const Product& p, size_t begin, size_t end, const int32_t* lanesToValues) {
  const size_t quarter = (end - begin + 3) / 4;
  Part parts[4];
  for (size_t n = begin; n < begin + quarter; ++n)
    for (size_t vector = 0; vector < p.layout.vectors;) {
      const Range range(p.layout, vector);
      for (size_t i = 0; i < 4; ++i)
        readPart(p.weights, p.layout, n + i * quarter < end ? n + i * quarter : n, range, parts[i]);
      float sums[4];
      multiplyQuad<Bits, S>(p, parts, range, lanesToValues, sums);
      for (size_t i = 0; i < 4 && n + i * quarter < end; ++i)
        addSum(p, 0, n + i * quarter, sums[i], vector == 0);
      vector += range.vectors;
    }
}

/// `Rows` rows of activations with a part of columns [begin,end).
template <int Bits, Spread S, int Rows>
void multiplyPart(const Product& p, size_t m, size_t begin, size_t end, const Range& range,
                  const int32_t* lanesToValues) {
  Part part;
  float sums[4];
  for (size_t n = begin; n < end; ++n) {
    readPart(p.weights, p.layout, n, range, part);
    multiplyRows<Bits, S, Rows>(p, part, m, range, lanesToValues, sums);
    for (size_t i = 0; i < Rows; ++i)
      addSum(p, m + i, n, sums[i], range.vector == 0);
  }
}

/// Several rows of activations: parts of four of them stay in the first-level cache, and those of
/// kPanelColumns rows of W in the second.
template <int Bits, Spread S>
void multiplyFew(const Product& p, size_t begin, size_t end, const int32_t* lanesToValues) {
  for (size_t vector = 0; vector < p.layout.vectors;) {
    const Range range(p.layout, vector);
    size_t m = 0;
    for (; m + 4 <= p.rows; m += 4)
      multiplyPart<Bits, S, 4>(p, m, begin, end, range, lanesToValues);
    if (m + 2 <= p.rows) {
      multiplyPart<Bits, S, 2>(p, m, begin, end, range, lanesToValues);
      m += 2;
    }
    if (m < p.rows)
      multiplyPart<Bits, S, 1>(p, m, begin, end, range, lanesToValues);
    vector += range.vectors;
  }
}

template <int Bits, Spread S> void multiplyRange(const Product& p, size_t begin, size_t end) {
  const Layout& layout = p.layout;
  HWY_ALIGN int32_t lanesToValues[kMaxLanes] = {};
  if constexpr (S == Spread::equal)
    for (size_t lane = 0; lane < layout.lanes; ++lane)
      lanesToValues[lane] = static_cast<int32_t>(lane / layout.wordsPerBlock);
  if (p.rows == 1)
    multiplyOne<Bits, S>(p, begin, end, lanesToValues);
  else
    for (; begin < end; begin += kPanelColumns)
      multiplyFew<Bits, S>(p, begin, HWY_MIN(begin + kPanelColumns, end), lanesToValues);
}

template <int Bits> void multiplyRange(const Product& p, size_t begin, size_t end) {
  switch (p.layout.spread) {
  case Spread::one:
    return multiplyRange<Bits, Spread::one>(p, begin, end);
  case Spread::equal:
    return multiplyRange<Bits, Spread::equal>(p, begin, end);
  case Spread::uneven:
    return multiplyRange<Bits, Spread::uneven>(p, begin, end);
  }
}

} // namespace

int64_t packedFloats(const BlockWeights& weights) {
  return static_cast<int64_t>(Layout(weights).rowFloats());
}

void packRow(const BlockWeights& weights, const float* a, float* packed) {
  const Layout layout(weights);
  const size_t inner = static_cast<size_t>(weights.inner);
  float* sums = packed + layout.activations();
  for (size_t word = 0; word < layout.vectors * layout.lanes; ++word) {
    const size_t vector = word / layout.lanes, lane = word % layout.lanes;
    float* to = packed + vector * layout.lanes * layout.perWord + lane;
    float sum = 0;
    for (size_t i = 0; i < layout.perWord; ++i) {
      const size_t k = word * layout.perWord + i;
      const float value = k < inner ? a[k] : 0.0f;
      to[i * layout.lanes] = value * fieldFactor(static_cast<size_t>(weights.bits), i);
      sum += value;
    }
    sums[word] = sum;
  }
}

void multiplyBlocks(const BlockWeights& weights, const float* packed, int64_t rows, int64_t begin,
                    int64_t end, float* out, int64_t outStride) {
  const Product p{weights, Layout(weights),
                  packed,  static_cast<size_t>(rows),
                  out,     static_cast<size_t>(outStride)};
  const size_t from = static_cast<size_t>(begin), to = static_cast<size_t>(end);
  if (weights.bits == 2)
    multiplyRange<2>(p, from, to);
  else if (weights.bits == 4)
    multiplyRange<4>(p, from, to);
  else
    multiplyRange<8>(p, from, to);
}

} // namespace kvopt::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::linear {

HWY_EXPORT(packedFloats);
HWY_EXPORT(packRow);
HWY_EXPORT(multiplyBlocks);

int64_t packedActivationFloats(const BlockWeights& weights, int64_t rows) {
  return rows * HWY_DYNAMIC_DISPATCH(packedFloats)(weights);
}

void packActivations(const BlockWeights& weights, const float* a, int64_t aStride, int64_t rows,
                     float* packed) {
  const int64_t floats = packedActivationFloats(weights, 1);
  for (int64_t m = 0; m < rows; ++m)
    HWY_DYNAMIC_DISPATCH(packRow)(weights, a + m * aStride, packed + m * floats);
}

void multiplyBlocks(const BlockWeights& weights, const float* packed, int64_t rows, int64_t begin,
                    int64_t end, float* out, int64_t outStride) {
  assert(rows <= fewRows && begin >= 0 && end <= weights.columns && weights.inner > 0);
  if (begin < end && rows > 0)
    HWY_DYNAMIC_DISPATCH(multiplyBlocks)(weights, packed, rows, begin, end, out, outStride);
}

} // namespace kvopt::linear
#endif // HWY_ONCE
