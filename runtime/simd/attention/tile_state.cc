// Online softmax over tiles with a normalized output:
//
//   base  = max(m, m_tile), at most the largest number of the state
//   sum'  = sum exp(m - base) + sum_tile exp(m_tile - base) / 64
//   out'  = (out sum exp(m - base) + out_tile sum_tile exp(m_tile - base) / 64) / sum'
#include "runtime/simd/attention/tile_state.h"

#include "support/half.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvopt::simd {

namespace {

constexpr float largestHalf = 65504.0f;
constexpr float sumUnit = 1.0f / 64;

/// Numbers of a state in its storage.
struct StateNumbers {
  FloatStorage storage;
  std::byte* data;

  float get(int64_t index) const {
    return storage == FloatStorage::f32
               ? reinterpret_cast<const float*>(data)[index]
               : f16ToFloat(reinterpret_cast<const uint16_t*>(data)[index]);
  }
  /// Returns the stored number.
  float set(int64_t index, float number) const {
    if (storage == FloatStorage::f32)
      return reinterpret_cast<float*>(data)[index] = number;
    const uint16_t bits = floatToF16(number);
    reinterpret_cast<uint16_t*>(data)[index] = bits;
    return f16ToFloat(bits);
  }
};

float readMaximum(const TileState& state, int64_t row) {
  const StateNumbers numbers{state.storage, state.maximum};
  if (state.storage == FloatStorage::f32)
    return numbers.get(row);
  return numbers.get(2 * row) + numbers.get(2 * row + 1);
}

/// Returns the maximum as it is stored.
float writeMaximum(const TileState& state, int64_t row, float maximum) {
  const StateNumbers numbers{state.storage, state.maximum};
  if (state.storage == FloatStorage::f32)
    return numbers.set(row, maximum);
  const float rounded = numbers.set(2 * row, maximum);
  return rounded + numbers.set(2 * row + 1, maximum - rounded);
}

} // namespace

float lowestScoreOf(FloatStorage storage) {
  return storage == FloatStorage::f16 ? -largestHalf : std::numeric_limits<float>::lowest();
}

void mergeTileRow(const TileRow& tile, const TileState& before, const TileState& after, int64_t row,
                  int64_t width) {
  const float earlier = readMaximum(before, row);
  const float larger = std::max(earlier, tile.maximum);
  const float base = writeMaximum(after, row, std::min(larger, -lowestScoreOf(after.storage)));
  const float kept = StateNumbers{before.storage, before.sum}.get(row) * std::exp(earlier - base);
  // A row that sees no key of the tile has no maximum.
  const float added = tile.sum == 0 ? 0 : tile.sum * std::exp(tile.maximum - base) * sumUnit;
  const float sum = kept + added;
  StateNumbers{after.storage, after.sum}.set(row, sum);
  const float divisor = sum == 0 ? 1 : sum;
  const float ofBefore = kept / divisor, ofTile = added / divisor;
  const StateNumbers from{before.storage, before.output}, to{after.storage, after.output};
  for (int64_t d = 0; d < width; ++d)
    to.set(row * width + d, from.get(row * width + d) * ofBefore + tile.output[d] * ofTile);
}

} // namespace kvopt::simd
