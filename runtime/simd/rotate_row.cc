// Rotation of the pairs of one row, for each storage of numbers.
#include "runtime/simd/rotate_row.h"

#include "support/half.h"

#include <algorithm>

namespace kvopt::simd {

namespace {

struct F32 {
  using Stored = float;
  static float load(float stored) { return stored; }
  static float store(float value) { return value; }
};
struct F16 {
  using Stored = uint16_t;
  static float load(uint16_t stored) { return f16ToFloat(stored); }
  static uint16_t store(float value) { return floatToF16(value); }
};
struct Bf16 {
  using Stored = uint16_t;
  static float load(uint16_t stored) { return bf16ToFloat(stored); }
  static uint16_t store(float value) { return floatToBf16(value); }
};

template <class Storage>
void rotate(const void* from, void* to, int64_t width, const RotaryRow& angles) {
  const auto* x = static_cast<const typename Storage::Stored*>(from);
  auto* y = static_cast<typename Storage::Stored*>(to);
  for (int64_t i = 0; i < angles.half; ++i) {
    const int64_t first = angles.interleaved ? 2 * i : i;
    const int64_t second = angles.interleaved ? first + 1 : first + angles.half;
    const float a = Storage::load(x[first]);
    const float b = Storage::load(x[second]);
    y[first] = Storage::store(angles.cosine[i] * a - angles.sine[i] * b);
    y[second] = Storage::store(angles.sine[i] * a + angles.cosine[i] * b);
  }
  std::copy_n(x + 2 * angles.half, width - 2 * angles.half, y + 2 * angles.half);
}

} // namespace

void rotateRow(const void* from, void* to, FloatStorage storage, int64_t width,
               const RotaryRow& angles) {
  switch (storage) {
  case FloatStorage::f32:
    return rotate<F32>(from, to, width, angles);
  case FloatStorage::f16:
    return rotate<F16>(from, to, width, angles);
  case FloatStorage::bf16:
    return rotate<Bf16>(from, to, width, angles);
  }
}

} // namespace kvopt::simd
