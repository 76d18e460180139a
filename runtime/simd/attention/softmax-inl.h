// Parts shared by attention kernels with AttentionBlocks: packing of queries, the online softmax of
// one tile of scores, and the writing of results.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_SOFTMAX_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_SOFTMAX_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_SOFTMAX_INL_H
#endif

#include "runtime/simd/attention/attention_block.h"
#include "runtime/simd/attention/products-inl.h"
#include "runtime/simd/vector-inl.h"

#include <hwy/highway.h>

#include <algorithm>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

inline constexpr float kLargest = std::numeric_limits<float>::max();
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <class Element>
const Element* headBase(const void* base, const RowStrides& strides, int64_t batch, int64_t head) {
  return static_cast<const Element*>(base) + batch * strides.batch + head * strides.head;
}

/// Start of a packed query, and number of vectors of other queries between its own.
struct PackedPlace {
  float* first;
  size_t between;
};

template <class Storage, class Place>
void packQueries(const AttentionBlock& block, const Place& placeOf) {
  const AttentionView& view = block.view;
  const size_t width = static_cast<size_t>(view.keyWidth);
  for (int64_t query = 0; query < block.queries; ++query) {
    const int64_t head = block.kvHead * block.group + query % block.group;
    const auto* row =
        headBase<typename Storage::Element>(view.query, view.queryStrides, block.batch, head) +
        (block.firstRow + query / block.group) * view.queryStrides.row;
    const PackedPlace place = placeOf(query);
    if (view.keyTransposed)
      for (size_t d = 0; d < width; ++d)
        place.first[d] = toFloat(Storage(), row[d]);
    else
      packRow<Storage>(row, width, place.first, place.between);
  }
}

/// A sink is a first logit without a value.
inline void startRows(const AttentionBlock& block, bool withSink = true) {
  for (int64_t query = 0; query < block.queries; ++query) {
    const int64_t head = block.kvHead * block.group + query % block.group;
    const float sink = withSink && block.view.sinks ? block.view.sinks[head] : kMinusInfinity;
    block.maximum[query] = HWY_MAX(sink, -kLargest);
    block.sum[query] = sink == kMinusInfinity ? 0.0f : 1.0f;
  }
  std::fill_n(block.accumulator, block.queries * block.packedValueWidth, 0.0f);
}

/// Packs every query at placeOf(query). For transposed keys, its elements are stored consecutively.
template <class Place> void packQueries(const AttentionBlock& block, const Place& placeOf) {
  switch (block.view.queryStorage) {
  case FloatStorage::f32:
    return packQueries<F32Storage>(block, placeOf);
  case FloatStorage::f16:
    return packQueries<F16Storage>(block, placeOf);
  case FloatStorage::bf16:
    return packQueries<Bf16Storage>(block, placeOf);
  }
}

/// Scales, caps and masks one query's dot products of a tile, and returns the largest. `bias` is
/// null if all keys are visible and unmasked. For quantized caches, the products are those of
/// codes.
inline float finishScores(const AttentionBlock& block, int64_t query, const float* bias) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  const AttentionView& view = block.view;
  const auto scale = hn::Set(f32, view.scale);
  const auto softcap = hn::Set(f32, view.softcap);
  const auto lowest = hn::Set(f32, view.lowestScore);
  const auto highest = hn::Set(f32, kLargest);
  const auto hidden = hn::Set(f32, kMinusInfinity);
  float* scores = block.scores + query * kAttentionTileKeys;
  auto largest = lowest;
  const auto scaled = [&](size_t j) HWY_ATTR {
    const auto product = hn::LoadU(f32, scores + j);
    return hn::Mul(
        block.keyScales ? hn::Mul(product, hn::LoadU(f32, block.keyScales + j)) : product, scale);
  };
  // NaN passes through: x86 returns the second operand.
  if (!bias && view.softcap == 0) {
    for (size_t j = 0; j < kAttentionTileKeys; j += lanes) {
      const auto bounded = hn::Min(highest, hn::Max(lowest, scaled(j)));
      hn::StoreU(bounded, f32, scores + j);
      largest = hn::Max(largest, bounded);
    }
    return hn::GetLane(hn::MaxOfLanes(f32, largest));
  }
  for (size_t j = 0; j < kAttentionTileKeys; j += lanes) {
    auto s = scaled(j);
    if (view.softcap != 0)
      s = hn::Mul(softcap, tanh(hn::Div(s, softcap)));
    const auto term = bias ? hn::LoadU(f32, bias + j) : hn::Zero(f32);
    s = hn::Min(highest, hn::Max(lowest, hn::Add(s, term)));
    s = hn::IfThenElse(hn::Eq(term, hidden), hidden, s);
    hn::StoreU(s, f32, scores + j);
    largest = hn::Max(largest, s);
  }
  return hn::GetLane(hn::MaxOfLanes(f32, largest));
}

/// Converts one query's scores of a tile to weights exp(s - maximum), and returns their sum. For
/// quantized caches, the results are factors of codes.
inline float weighScores(const AttentionBlock& block, int64_t query, float maximum) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  const auto shift = hn::Set(f32, maximum);
  float* scores = block.scores + query * kAttentionTileKeys;
  auto sum = hn::Zero(f32);
  for (size_t j = 0; j < kAttentionTileKeys; j += lanes) {
    const auto weight = exp(hn::Sub(hn::LoadU(f32, scores + j), shift));
    sum = hn::Add(sum, weight);
    hn::StoreU(block.valueScales ? hn::Mul(weight, hn::LoadU(f32, block.valueScales + j)) : weight,
               f32, scores + j);
  }
  return hn::GetLane(hn::SumOfLanes(f32, sum));
}

/// Converts the dot products of a tile to weights, and updates maxima, sums and corrections.
/// Processes several queries together in steps, which hides latencies.
inline void softmaxTile(const AttentionBlock& block, int64_t tile) {
  const F32Tag f32;
  constexpr int64_t kTogether = 4;
  const bool perHead = block.view.maskKind != MaskKind::none && block.view.maskStrides.head != 0;
  bool biased = false;
  if (block.view.isQuantized())
    block.fillScales(tile);
  for (int64_t first = 0; first < block.queries; first += kTogether) {
    const int64_t count = HWY_MIN(block.queries - first, kTogether);
    HWY_ALIGN float before[kMaxLanes] = {}, now[kMaxLanes] = {}, correction[kMaxLanes];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t query = first + i, headInGroup = query % block.group;
      if (headInGroup == 0 || perHead)
        biased = block.fillBias(block.firstRow + query / block.group,
                                block.kvHead * block.group + headInGroup, tile);
      before[i] = block.maximum[query];
      const float largest = finishScores(block, query, biased ? block.bias : nullptr);
      now[i] = HWY_MAX(before[i], largest);
    }
    for (size_t i = 0; i < kTogether; i += hn::Lanes(f32))
      hn::StoreU(exp(hn::Sub(hn::LoadU(f32, before + i), hn::LoadU(f32, now + i))), f32,
                 correction + i);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t query = first + i;
      block.maximum[query] = now[i];
      block.correction[query] = correction[i];
      block.sum[query] = block.sum[query] * correction[i] + weighScores(block, query, now[i]);
    }
  }
}

inline void storeElement(void* base, int64_t index, FloatStorage storage, float value) {
  if (storage == FloatStorage::f32)
    static_cast<float*>(base)[index] = value;
  else
    static_cast<uint16_t*>(base)[index] =
        storage == FloatStorage::f16 ? floatToF16(value) : floatToBf16(value);
}

inline void storeOutput(const AttentionBlock& block) {
  const AttentionView& view = block.view;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32Tag()));
  const int64_t tail = view.valueWidth % lanes;
  const int64_t whole = view.valueWidth - tail;
  const RowStrides& strides = view.outputStrides;
  for (int64_t query = 0; query < block.queries; ++query) {
    const int64_t head = block.kvHead * block.group + query % block.group;
    const int64_t row = block.firstRow + query / block.group;
    const int64_t index = block.batch * strides.batch + head * strides.head + row * strides.row;
    const float* packed = block.accumulator + query * block.packedValueWidth;
    view.storeWeights(block.batch, head, row, block.maximum[query], block.sum[query]);
    const float sum = block.sum[query] == 0.0f ? 1.0f : block.sum[query];
    int64_t d = 0;
    if (view.outputStorage == FloatStorage::f32) {
      const F32Tag f32;
      float* output = static_cast<float*>(view.output) + index;
      for (; d < whole; d += lanes)
        hn::StoreU(hn::Div(hn::LoadU(f32, packed + d), hn::Set(f32, sum)), f32, output + d);
    }
    for (; d < view.valueWidth; ++d) {
      const float value = packed[d < whole ? d : d + lanes - tail];
      storeElement(view.output, index + d, view.outputStorage, value / sum);
    }
  }
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
