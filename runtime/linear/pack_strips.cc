// Strips of weights. Weights stored by column are transposed in square tiles of vectors.
#include "runtime/linear/pack_strips.h"

#include <cassert>
#include <cstring>

// Highway compiles this file once per SIMD target (see blocks.cc).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/linear/pack_strips.cc"
#include <hwy/foreach_target.h>

#include "runtime/linear/block_parts-inl.h"
#include "runtime/simd/prefetch.h"

#include "runtime/simd/vector-inl.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvopt::linear::HWY_NAMESPACE {
using namespace simd;
using namespace simd::HWY_NAMESPACE;
namespace {

constexpr size_t kStrip = size_t{stripColumns};

/// Transposes a square tile of `lanes` vectors at `tile`, which stays in the first-level cache. One
/// pass moves the lowest bit of the column index to the top of the row index, and that of the row
/// index to the top of the column index; after log2(lanes) passes, the indices are exchanged.
/// `other` is a working copy. Returns the one that holds the result.
template <class Tag, class Element>
Element* transposeTile([[maybe_unused]] Tag tag, [[maybe_unused]] size_t lanes, Element* tile,
                       [[maybe_unused]] Element* other) {
#if HWY_TARGET != HWY_SCALAR // with one lane, nothing is exchanged
  for (size_t pass = 1; pass < lanes; pass *= 2) {
    for (size_t i = 0; i < lanes / 2; ++i) {
      const auto low = hn::Load(tag, tile + 2 * i * lanes);
      const auto high = hn::Load(tag, tile + (2 * i + 1) * lanes);
      hn::Store(hn::ConcatEven(tag, high, low), tag, other + i * lanes);
      hn::Store(hn::ConcatOdd(tag, high, low), tag, other + (i + lanes / 2) * lanes);
    }
    Element* written = other;
    other = tile;
    tile = written;
  }
#endif
  return tile;
}

/// Prefetch distance in rows of W, which are far from each other in memory.
constexpr size_t kRowsAhead = 8;

template <class Storage>
void packByRow(const void* weights, size_t stride, size_t inner, size_t begin, size_t end,
               float* strips) {
  const F32Tag f32;
  const Storage storage;
  const size_t lanes = hn::Lanes(f32);
  const size_t padded = (inner + size_t{stripInner} - 1) / size_t{stripInner} * size_t{stripInner};
  const auto* from = static_cast<const typename Storage::Element*>(weights);
  constexpr size_t kLineElements = 64 / sizeof(*from);
  for (size_t k = 0; k < padded; ++k)
    for (size_t n = begin; n < end; n += kStrip) {
      float* to = strips + ((n - begin) / kStrip * padded + k) * kStrip;
      const size_t width = k < inner ? HWY_MIN(kStrip, end - n) : 0;
      size_t i = 0;
      if (k + kRowsAhead < inner)
        for (; i < width; i += kLineElements)
          prefetchLine(from + (k + kRowsAhead) * stride + n + i);
      i = 0;
      for (; i + lanes <= width; i += lanes)
        hn::StoreU(load(storage, from + k * stride + n + i), f32, to + i);
      for (; i < width; ++i)
        to[i] = toFloat(storage, from[k * stride + n + i]);
      for (; i < kStrip; ++i)
        to[i] = 0.0f;
    }
}

template <class Storage>
void packByColumn(const void* weights, size_t stride, size_t inner, size_t begin, size_t end,
                  float* strips) {
  const F32Tag f32;
  const Storage storage;
  const size_t lanes = hn::Lanes(f32);
  const size_t padded = (inner + size_t{stripInner} - 1) / size_t{stripInner} * size_t{stripInner};
  const auto* from = static_cast<const typename Storage::Element*>(weights);
  HWY_ALIGN float tile[kMaxLanes * kMaxLanes];
  HWY_ALIGN float other[kMaxLanes * kMaxLanes];
  for (size_t first = begin; first < end; first += kStrip) {
    float* strip = strips + (first - begin) / kStrip * padded * kStrip;
    for (size_t k = 0; k < padded; k += lanes)
      for (size_t n = 0; n < kStrip; n += lanes) {
        for (size_t row = 0; row < lanes; ++row) {
          const size_t column = first + n + row;
          const auto* at = from + column * stride + k;
          float* to = tile + row * lanes;
          if (column < end && k + lanes <= inner) {
            hn::StoreU(load(storage, at), f32, to);
          } else {
            for (size_t i = 0; i < lanes; ++i)
              to[i] = column < end && k + i < inner ? toFloat(storage, at[i]) : 0.0f;
          }
        }
        const float* result = transposeTile(f32, lanes, tile, other);
        for (size_t i = 0; i < lanes; ++i)
          hn::StoreU(hn::Load(f32, result + i * lanes), f32, strip + (k + i) * kStrip + n);
      }
  }
}

/// Stores the numbers of a vector of words, one word per column, as rows k to k + 32 / Bits - 1.
template <int Bits, class Words>
HWY_INLINE void storeNumbers(Words words, F32Vec zero, F32Vec scale, float* to) {
  const F32Tag f32;
  const U32Tag u32;
  const hn::RebindToSigned<U32Tag> i32;
  const auto mask = hn::Set(u32, (1u << Bits) - 1);
  for (size_t i = 0; i < 32 / Bits; ++i) {
    const auto number = hn::ConvertTo(f32, hn::BitCast(i32, hn::And(words, mask)));
    hn::StoreU(hn::Mul(hn::Sub(number, zero), scale), f32, to + i * kStrip);
    words = hn::ShiftRight<Bits>(words);
  }
}

/// Numbers, zero points and scales of up to 16 columns of W.
template <int Bits> class BlockColumns {
public:
  BlockColumns(const BlockWeights& weights, size_t firstColumn, size_t columnCount, float* strip)
      : w(weights), first(firstColumn), count(columnCount), to(strip), lanes(hn::Lanes(F32Tag())) {}

  void pack() {
    constexpr size_t perWord = 32 / Bits;
    const F32Tag f32;
    const U32Tag u32;
    const size_t inner = static_cast<size_t>(w.inner);
    const size_t words = static_cast<size_t>(w.rowBytes()) / 4;
    const size_t wordsPerBlock = static_cast<size_t>(w.blockSize) / perWord;
    for (size_t word = 0; word < words && word * perWord < inner; word += lanes) {
      const size_t most = HWY_MIN(lanes, words - word);
      const uint32_t* columns = readWords(word, most);
      for (size_t i = 0; i < most; ++i) {
        const size_t k = (word + i) * perWord;
        if (k >= inner)
          break;
        if ((word + i) % wordsPerBlock == 0)
          readBlock((word + i) / wordsPerBlock);
        const auto numbers = hn::Load(u32, columns + i * lanes);
        const auto zero = hn::Load(f32, zeros), scale = hn::Load(f32, scales);
        if (k + perWord <= inner) {
          storeNumbers<Bits>(numbers, zero, scale, to + k * kStrip);
        } else {
          HWY_ALIGN float last[perWord * kStrip];
          storeNumbers<Bits>(numbers, zero, scale, last);
          for (size_t row = 0; k + row < inner; ++row)
            hn::StoreU(hn::Load(f32, last + row * kStrip), f32, to + (k + row) * kStrip);
        }
      }
    }
  }

private:
  /// Words [word,word+most) of all columns, transposed.
  const uint32_t* readWords(size_t word, size_t most) {
    for (size_t column = 0; column < lanes; ++column) {
      uint32_t* at = tile + column * lanes;
      const size_t read = column < count ? most : 0;
      if (read != 0)
        std::memcpy(at, w.numbers + (first + column) * static_cast<size_t>(w.rowBytes()) + 4 * word,
                    4 * read);
      for (size_t i = read; i < lanes; ++i)
        at[i] = 0;
    }
    return transposeTile(U32Tag(), lanes, tile, other);
  }
  void readBlock(size_t block) {
    for (size_t column = 0; column < lanes; ++column) {
      scales[column] = 0;
      zeros[column] = static_cast<float>(1 << (Bits - 1));
      if (column >= count)
        continue;
      readFloats(w.scales, w.scaleStorage, (first + column) * static_cast<size_t>(w.blocks) + block,
                 1, scales + column);
      if (w.zeroKind != BlockWeights::Zeros::middle)
        readZeros(w, first + column, block, 1, zeros + column);
    }
  }

  const BlockWeights& w;
  const size_t first, count;
  float* to;
  const size_t lanes;
  HWY_ALIGN uint32_t tile[kMaxLanes * kMaxLanes];
  HWY_ALIGN uint32_t other[kMaxLanes * kMaxLanes];
  HWY_ALIGN float scales[kMaxLanes];
  HWY_ALIGN float zeros[kMaxLanes];
};

template <int Bits>
void packColumns(const BlockWeights& w, size_t begin, size_t end, float* strips) {
  const size_t lanes = hn::Lanes(F32Tag());
  const size_t inner = static_cast<size_t>(w.inner);
  const size_t padded = (inner + size_t{stripInner} - 1) / size_t{stripInner} * size_t{stripInner};
  for (size_t first = begin; first < end; first += kStrip) {
    float* strip = strips + (first - begin) / kStrip * padded * kStrip;
    for (size_t n = 0; n < kStrip; n += lanes) {
      const size_t count = first + n < end ? HWY_MIN(lanes, end - first - n) : 0;
      BlockColumns<Bits>(w, first + n, count, strip + n).pack();
    }
    for (size_t i = inner * kStrip; i < padded * kStrip; ++i)
      strip[i] = 0.0f;
  }
}

} // namespace

void packFloats(const void* weights, FloatStorage storage, bool transposed, int64_t stride,
                int64_t inner, int64_t begin, int64_t end, float* strips) {
  const auto run = [&](auto kind) {
    using Storage = decltype(kind);
    const auto pack = transposed ? packByColumn<Storage> : packByRow<Storage>;
    pack(weights, static_cast<size_t>(stride), static_cast<size_t>(inner),
         static_cast<size_t>(begin), static_cast<size_t>(end), strips);
  };
  switch (storage) {
  case FloatStorage::f32:
    return run(F32Storage());
  case FloatStorage::f16:
    return run(F16Storage());
  case FloatStorage::bf16:
    return run(Bf16Storage());
  }
}

void packBlocks(const BlockWeights& weights, int64_t begin, int64_t end, float* strips) {
  const auto pack = weights.bits == 2   ? packColumns<2>
                    : weights.bits == 4 ? packColumns<4>
                                        : packColumns<8>;
  pack(weights, static_cast<size_t>(begin), static_cast<size_t>(end), strips);
}

} // namespace kvopt::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::linear {
using namespace simd;

HWY_EXPORT(packFloats);
HWY_EXPORT(packBlocks);

int64_t stripFloats(int64_t inner, int64_t columns) {
  const int64_t padded = (inner + stripInner - 1) / stripInner * stripInner;
  return padded * ((columns + stripColumns - 1) / stripColumns * stripColumns);
}

void packStrips(const void* weights, FloatStorage storage, bool transposed, int64_t stride,
                int64_t inner, int64_t begin, int64_t end, float* strips) {
  HWY_DYNAMIC_DISPATCH(packFloats)
  (weights, storage, transposed, stride, inner, begin, end, strips);
}

void packStrips(const BlockWeights& weights, int64_t begin, int64_t end, float* strips) {
  assert(begin >= 0 && end <= weights.columns);
  HWY_DYNAMIC_DISPATCH(packBlocks)(weights, begin, end, strips);
}

} // namespace kvopt::linear
#endif // HWY_ONCE
