// Parts of rows of weights in blocks of small integers: the words and values of a part, and the
// corresponding order of activations.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_LINEAR_BLOCK_PARTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_LINEAR_BLOCK_PARTS_INL_H
#undef KVOPT_RUNTIME_LINEAR_BLOCK_PARTS_INL_H
#else
#define KVOPT_RUNTIME_LINEAR_BLOCK_PARTS_INL_H
#endif

#include "runtime/linear/block_product.h"
#include "runtime/simd/vector-inl.h"

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace kvopt::linear::HWY_NAMESPACE {
using namespace simd;
using namespace simd::HWY_NAMESPACE;

/// Count of numbers whose products are summed before they are added to the result: whole vectors of
/// words for all widths of numbers and vectors.
inline constexpr size_t kPartNumbers = 1024;
/// Maximum number of values of blocks or words in a part, including a vector that may be read after
/// them.
inline constexpr size_t kPartValues = kPartNumbers / 4 + kMaxLanes;

/// How the values of the words in a vector are obtained from those of blocks.
enum class Spread : uint8_t {
  one,    ///< the vector is within one block: one value
  equal,  ///< the vector contains whole blocks: one value for each
  uneven, ///< otherwise: one value for each word
};

/// Activations in the order of multiplyBlocks. For each vector of words: the activations of the
/// first number of every word, then of the second, and so on, each multiplied by fieldFactor. The
/// sums of activations by word follow. Activations after the last one are zero.
struct Layout {
  size_t lanes = hn::Lanes(F32Tag());
  size_t perWord;
  size_t vectors;
  size_t words; ///< number of words in a row of W
  size_t wordsPerBlock;
  Spread spread;
  size_t valuesPerVector;

  explicit Layout(const BlockWeights& w)
      : perWord(static_cast<size_t>(32 / w.bits)),
        vectors((static_cast<size_t>(w.inner) + lanes * perWord - 1) / (lanes * perWord)),
        words(static_cast<size_t>(w.rowBytes()) / 4),
        wordsPerBlock(static_cast<size_t>(w.blockSize * w.bits / 32)) {
    spread = wordsPerBlock % lanes == 0   ? Spread::one
             : lanes % wordsPerBlock == 0 ? Spread::equal
                                          : Spread::uneven;
    valuesPerVector = spread == Spread::one     ? 1
                      : spread == Spread::equal ? lanes / wordsPerBlock
                                                : lanes;
  }
  size_t activations() const { return vectors * lanes * perWord; }
  size_t rowFloats() const { return activations() + vectors * lanes; }
};

/// Words of a row that are multiplied before their products are added to the result.
struct Range {
  size_t vector;  ///< first vector of words
  size_t vectors; ///< number of vectors; the last may be partial
  size_t firstWord;
  size_t block; ///< block of the first word
  size_t blocks;

  Range(const Layout& layout, size_t first)
      : vector(first),
        vectors(HWY_MIN(kPartNumbers / (layout.perWord * layout.lanes), layout.vectors - first)),
        firstWord(first * layout.lanes), block(firstWord / layout.wordsPerBlock) {
    const size_t end = HWY_MIN(firstWord + vectors * layout.lanes, layout.words);
    blocks = (end - 1) / layout.wordsPerBlock - block + 1;
  }
};

/// A range of one row of W.
struct Part {
  const uint8_t* words;
  size_t count;       ///< number of words up to the end of the row
  const float* scale; ///< readable for one vector after the last value
  HWY_ALIGN float scaleValues[kPartValues];
  HWY_ALIGN float zero[kPartValues]; ///< only with zero points
};

/// Reads elements [begin,begin+count) as floats.
inline void readFloats(const void* base, simd::FloatStorage storage, size_t begin, size_t count,
                       float* to) {
  if (storage == simd::FloatStorage::f32) {
    std::memcpy(to, static_cast<const float*>(base) + begin, count * sizeof(float));
    return;
  }
  const uint16_t* from = static_cast<const uint16_t*>(base) + begin;
  const size_t lanes = hn::Lanes(F32Tag());
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(storage == simd::FloatStorage::f16 ? load(F16Storage(), from + i)
                                                  : load(Bf16Storage(), from + i),
               F32Tag(), to + i);
  for (; i < count; ++i)
    to[i] = storage == simd::FloatStorage::f16 ? toFloat(F16Storage(), from[i])
                                               : toFloat(Bf16Storage(), from[i]);
}

/// Zero points of blocks [begin,begin+count) of row `n`.
inline void readZeros(const BlockWeights& w, size_t n, size_t begin, size_t count, float* to) {
  if (w.zeroKind == BlockWeights::Zeros::floats) {
    readFloats(w.zeros, w.zeroStorage, n * static_cast<size_t>(w.blocks) + begin, count, to);
    return;
  }
  const uint8_t* row =
      static_cast<const uint8_t*>(w.zeros) + n * static_cast<size_t>(w.zeroRowBytes());
  const size_t bits = static_cast<size_t>(w.bits);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = (begin + i) * bits;
    to[i] = static_cast<float>((row[at / 8] >> (at % 8)) & ((1 << bits) - 1));
  }
}

/// Expands the values of `count` blocks to one value per vector or word. Missing words have zero
/// activations, so any finite value is valid for them.
inline void spreadBlocks(const Layout& layout, const Range& range, const float* blocks, float* to) {
  const size_t step = layout.lanes / layout.valuesPerVector;
  size_t within = range.firstWord % layout.wordsPerBlock;
  size_t block = 0;
  for (size_t i = 0; i < range.vectors * layout.valuesPerVector; ++i) {
    to[i] = blocks[block];
    within += step;
    if (within >= layout.wordsPerBlock && block + 1 < range.blocks) {
      ++block;
      within = 0;
    }
  }
}

inline void zeroValues(float* values, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i)
    values[i] = 0.0f;
}

/// Reads the range's part of row `n` of W.
inline void readPart(const BlockWeights& w, const Layout& layout, size_t n, const Range& range,
                     Part& part) {
  part.words = w.numbers + n * static_cast<size_t>(w.rowBytes()) + 4 * range.firstWord;
  part.count = layout.words - range.firstWord;
  const bool hasZeros = w.zeroKind != BlockWeights::Zeros::middle;
  const size_t index = n * static_cast<size_t>(w.blocks) + range.block;
  part.scale = part.scaleValues;
  if (layout.spread == Spread::equal) {
    const size_t count = range.vectors * layout.valuesPerVector;
    if (w.scaleStorage == simd::FloatStorage::f32 && count == range.blocks &&
        index + count + layout.lanes <= static_cast<size_t>(w.columns * w.blocks)) {
      part.scale = static_cast<const float*>(w.scales) + index;
    } else {
      readFloats(w.scales, w.scaleStorage, index, range.blocks, part.scaleValues);
      zeroValues(part.scaleValues, range.blocks, count);
    }
    if (hasZeros) {
      readZeros(w, n, range.block, range.blocks, part.zero);
      zeroValues(part.zero, range.blocks, count);
    }
    return;
  }
  HWY_ALIGN float values[kPartValues];
  readFloats(w.scales, w.scaleStorage, index, range.blocks, values);
  spreadBlocks(layout, range, values, part.scaleValues);
  if (hasZeros) {
    readZeros(w, n, range.block, range.blocks, values);
    spreadBlocks(layout, range, values, part.zero);
  }
}

} // namespace kvopt::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
