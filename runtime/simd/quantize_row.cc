// Two passes over a row: the largest magnitude, then the quotients.
#include "runtime/simd/quantize_row.h"

#include <algorithm>
#include <limits>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/quantize_row.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {
namespace {

constexpr float kLargestCode = 127.0f;

/// The first `count` <= Lanes elements; zero in the remaining lanes.
template <class Storage>
HWY_INLINE F32Vec loadFirst(const typename Storage::Element* from, size_t count) {
  const F32Tag f32;
  if (count == hn::Lanes(f32))
    return load(Storage(), from);
  HWY_ALIGN float buffer[kMaxLanes] = {};
  for (size_t i = 0; i < count; ++i)
    buffer[i] = toFloat(Storage(), from[i]);
  return hn::Load(f32, buffer);
}

HWY_INLINE void storeFirst(hn::Vec<hn::Rebind<int8_t, F32Tag>> codes, int8_t* to, size_t count) {
  const hn::Rebind<int8_t, F32Tag> i8;
  if (count == hn::Lanes(i8))
    return hn::StoreU(codes, i8, to);
  HWY_ALIGN int8_t buffer[kMaxLanes];
  hn::Store(codes, i8, buffer);
  std::copy_n(buffer, count, to);
}

template <class Storage>
float quantize(const typename Storage::Element* row, size_t width, int8_t* codes) {
  const F32Tag f32;
  const hn::RebindToSigned<F32Tag> i32;
  const hn::Rebind<int8_t, F32Tag> i8;
  const size_t lanes = hn::Lanes(f32);
  const auto limit = hn::Set(f32, std::numeric_limits<float>::max());
  auto largest = hn::Zero(f32);
  auto finite = hn::Eq(largest, largest);
  for (size_t d = 0; d < width; d += lanes) {
    const auto magnitude = hn::Abs(loadFirst<Storage>(row + d, HWY_MIN(lanes, width - d)));
    // Also false for NaN.
    finite = hn::And(finite, hn::Le(magnitude, limit));
    largest = hn::Max(largest, magnitude);
  }
  if (!hn::AllTrue(f32, finite)) {
    std::fill_n(codes, width, int8_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale = hn::GetLane(hn::MaxOfLanes(f32, largest)) / kLargestCode;
  const auto divisor = hn::Set(f32, scale == 0.0f ? 1.0f : scale);
  const auto upper = hn::Set(f32, kLargestCode), lower = hn::Set(f32, -kLargestCode);
  for (size_t d = 0; d < width; d += lanes) {
    const size_t count = HWY_MIN(lanes, width - d);
    const auto quotient = hn::Round(hn::Div(loadFirst<Storage>(row + d, count), divisor));
    const auto code = hn::ConvertTo(i32, hn::Max(lower, hn::Min(upper, quotient)));
    storeFirst(hn::DemoteTo(i8, code), codes + d, count);
  }
  return scale;
}

} // namespace

float quantizeRowOf(const void* row, FloatStorage storage, size_t width, int8_t* codes) {
  switch (storage) {
  case FloatStorage::f32:
    return quantize<F32Storage>(static_cast<const float*>(row), width, codes);
  case FloatStorage::f16:
    return quantize<F16Storage>(static_cast<const uint16_t*>(row), width, codes);
  case FloatStorage::bf16:
    return quantize<Bf16Storage>(static_cast<const uint16_t*>(row), width, codes);
  }
  return 0;
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(quantizeRowOf);

float quantizeRow(const void* row, FloatStorage storage, size_t width, int8_t* codes) {
  return HWY_DYNAMIC_DISPATCH(quantizeRowOf)(row, storage, width, codes);
}

} // namespace kvopt::simd
#endif // HWY_ONCE
