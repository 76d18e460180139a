// Definition of attention: one query row at a time, with T scores in double.
//
//   s[j] = softcap(scale * Q[i] . K[j]) + mask[i,j]        over the keys j that row i sees
//   O[i] = sum_j exp(s[j]) V[j] / (exp(sink) + sum_j exp(s[j]))
#include "runtime/simd/attention/attention_reference.h"
#include "support/four_bit_row.h"

#include "support/half.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

namespace kvopt::simd {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

double element(const void* base, int64_t index, FloatStorage storage) {
  switch (storage) {
  case FloatStorage::f32:
    return double{static_cast<const float*>(base)[index]};
  case FloatStorage::f16:
    return double{f16ToFloat(static_cast<const uint16_t*>(base)[index])};
  case FloatStorage::bf16:
    return double{bf16ToFloat(static_cast<const uint16_t*>(base)[index])};
  }
  return 0;
}

struct Row {
  const AttentionView& view;
  int64_t batch;
  int64_t head;
  int64_t row;

  int64_t kvHead() const { return head / (view.queryHeads / view.kvHeads); }

  bool sees(int64_t key) const {
    const int64_t position = row + view.totalLengthOf(batch) - view.queryRows;
    if (view.causal && key > position)
      return false;
    return view.window == 0 || position - key < view.window;
  }

  /// Column `d` of a row of `width` columns that begins at `start`, with distance `step` between
  /// columns.
  double cached(const void* cache, int64_t start, int64_t d, int64_t width,
                int64_t step = 1) const {
    if (view.codeForm == CodeForm::nibbles) {
      const int byte = static_cast<const uint8_t*>(cache)[start + d / 2];
      return static_cast<double>((d % 2 == 0 ? byte & 15 : byte >> 4) - nibbleOffset);
    }
    if (view.codeForm == CodeForm::fourBitRows) {
      const int64_t half = FourBitRow{width}.halfGroup();
      const uint8_t* group =
          static_cast<const uint8_t*>(cache) + start + d / (2 * half) * (half + 1);
      const int64_t column = d % (2 * half);
      const int stored = column < half ? group[column] & 15 : group[column - half] >> 4;
      return static_cast<double>((stored - FourBitRow::codeOffset) * group[half]);
    }
    const int64_t index = start + d * step;
    if (view.isQuantized())
      return static_cast<double>(static_cast<const int8_t*>(cache)[index]);
    return element(cache, index, view.cacheStorage);
  }

  double scaleOf(const float* scales, const RowStrides& strides, int64_t key) const {
    if (!view.isQuantized())
      return 1;
    return double{scales[batch * strides.batch + kvHead() * strides.head + key * strides.row]};
  }

  /// The segment that contains the position, or the whole cache.
  KeyValueSegment place(int64_t key) const {
    KeyValueSegment found{0, view.key, view.value, view.keyStrides, view.valueStrides};
    for (const KeyValueSegment& segment : view.segments)
      if (segment.begin <= key)
        found = segment;
    return found;
  }

  double dot(int64_t key) const {
    const int64_t query = batch * view.queryStrides.batch + head * view.queryStrides.head +
                          row * view.queryStrides.row;
    const KeyValueSegment segment = place(key);
    const RowStrides& strides = segment.keyStrides;
    const int64_t base = batch * strides.batch + kvHead() * strides.head;
    const int64_t index = key - segment.begin;
    double sum = 0;
    for (int64_t d = 0; d < view.keyWidth; ++d)
      sum +=
          element(view.query, query + d, view.queryStorage) *
          (view.keyTransposed ? cached(segment.key, base + index, d, view.keyWidth, strides.row)
                              : cached(segment.key, base + index * strides.row, d, view.keyWidth));
    return sum * scaleOf(view.keyScales, view.keyScaleStrides, key);
  }

  double mask(int64_t key) const {
    const MaskStrides& strides = view.maskStrides;
    const int64_t at =
        batch * strides.batch + head * strides.head + row * strides.row + key * strides.column;
    switch (view.maskKind) {
    case MaskKind::none:
      return 0;
    case MaskKind::additive:
      return element(view.mask, at, view.maskStorage);
    case MaskKind::boolean:
      return static_cast<const uint8_t*>(view.mask)[at] ? 0 : kMinusInfinity;
    }
    return 0;
  }

  double score(int64_t key) const {
    if (!sees(key))
      return kMinusInfinity;
    const double scaled = double{view.scale} * dot(key);
    const double cap = double{view.softcap};
    const double sum = (cap == 0 ? scaled : cap * std::tanh(scaled / cap)) + mask(key);
    return sum == kMinusInfinity ? sum : std::max(sum, double{view.lowestScore});
  }

  double value(int64_t key, int64_t d) const {
    const KeyValueSegment segment = place(key);
    const RowStrides& strides = segment.valueStrides;
    const int64_t at =
        batch * strides.batch + kvHead() * strides.head + (key - segment.begin) * strides.row;
    return cached(segment.value, at, d, view.valueWidth) *
           scaleOf(view.valueScales, view.valueScaleStrides, key);
  }
};

void attend(const Row& row, double* output) {
  const AttentionView& view = row.view;
  std::fill_n(output, view.valueWidth, 0.0);
  const double sink = view.sinks ? double{view.sinks[row.head]} : kMinusInfinity;
  std::vector<double> scores;
  double maximum = sink;
  for (int64_t key = 0; key < view.totalLengthOf(row.batch); ++key) {
    scores.push_back(row.score(key));
    maximum = std::max(maximum, scores.back());
  }
  const auto storeWeights = [&](double sum) {
    view.storeWeights(row.batch, row.head, row.row, static_cast<float>(maximum),
                      static_cast<float>(sum));
  };
  if (maximum == kMinusInfinity)
    return storeWeights(0);
  double sum = std::exp(sink - maximum);
  for (const double score : scores)
    sum += std::exp(score - maximum);
  storeWeights(sum);
  int64_t key = 0;
  for (const double score : scores) {
    if (score != kMinusInfinity)
      for (int64_t d = 0; d < view.valueWidth; ++d)
        output[d] += std::exp(score - maximum) / sum * row.value(key, d);
    ++key;
  }
}

} // namespace

void attentionReference(const AttentionView& view, std::span<double> output) {
  assert(static_cast<int64_t>(output.size()) ==
         view.batches * view.queryHeads * view.queryRows * view.valueWidth);
  double* next = output.data();
  for (int64_t batch = 0; batch < view.batches; ++batch)
    for (int64_t head = 0; head < view.queryHeads; ++head)
      for (int64_t row = 0; row < view.queryRows; ++row, next += view.valueWidth)
        attend({view, batch, head, row}, next);
}

} // namespace kvopt::simd
