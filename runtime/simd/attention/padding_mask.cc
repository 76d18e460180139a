// Sum of a bias, hidden keys and a causal limit.
#include "runtime/simd/attention/padding_mask.h"

#include <algorithm>
#include <limits>

namespace kvopt::simd {

std::optional<PaddingForm> paddingFormOf(std::span<const int64_t> shape, int64_t batches,
                                         int64_t rows, int64_t keys, bool hasRanges) {
  const auto is = [&](std::initializer_list<int64_t> expected) {
    return std::ranges::equal(shape, expected);
  };
  if (is({batches}) || is({3 * batches + 2}))
    return PaddingForm::lengths;
  if (hasRanges && is({2 * batches}))
    return PaddingForm::ranges;
  if (is({batches, keys}))
    return PaddingForm::keys;
  if (is({batches, rows, keys}))
    return PaddingForm::pairs;
  return std::nullopt;
}

bool PaddingMask::isVisible(int64_t batch, int64_t row, int64_t key) const {
  switch (form) {
  case PaddingForm::none:
    return true;
  case PaddingForm::lengths:
    return key < visible[batch];
  case PaddingForm::ranges:
    return key < visible[batch] && key >= visible[batches + batch];
  case PaddingForm::keys:
    return visible[batch * keys + key] > 0;
  case PaddingForm::pairs:
    return visible[(batch * rows + row) * keys + key] > 0;
  }
  return true;
}

void PaddingMask::write(float* out) const {
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t key = 0; key < keys; ++key) {
          float value = isVisible(batch, row, key) ? 0.0f : hidden;
          if (causal && row + 1 < rows && key > pastRows + row)
            value = std::numeric_limits<float>::lowest();
          if (bias)
            value += bias[batch * biasStrides[0] + head * biasStrides[1] + row * biasStrides[2] +
                          key * biasStrides[3]];
          *out++ = value;
        }
}

} // namespace kvopt::simd
