// Two loops over the values: their range, and their codes.
#include "runtime/simd/quantize_range.h"

#include <algorithm>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/quantize_range.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

ValueRange findRange(const float* values, size_t count) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  auto low = hn::Zero(f32), high = low;
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::LoadU(f32, values + i);
    low = hn::IfThenElse(hn::Lt(value, low), value, low);
    high = hn::IfThenElse(hn::Gt(value, high), value, high);
  }
  ValueRange range{hn::GetLane(hn::MinOfLanes(f32, low)), hn::GetLane(hn::MaxOfLanes(f32, high))};
  for (; i < count; ++i) {
    range.low = std::min(range.low, values[i]);
    range.high = std::max(range.high, values[i]);
  }
  return range;
}

HWY_INLINE hn::Vec<hn::RebindToSigned<F32Tag>> codesOf(F32Vec value, F32Vec scale, F32Vec zero,
                                                       F32Vec nan) {
  const F32Tag f32;
  const auto code = hn::Add(hn::Round(hn::Div(value, scale)), zero);
  const auto limited = hn::Min(hn::Max(code, hn::Zero(f32)), hn::Set(f32, 255.0f));
  return hn::ConvertTo(hn::RebindToSigned<F32Tag>(),
                       hn::IfThenElse(hn::Eq(code, code), limited, nan));
}

void quantizeAll(const float* values, size_t count, float scale, uint8_t zero, uint8_t nanCode,
                 uint8_t* codes) {
  const F32Tag f32;
  const hn::Rebind<uint8_t, F32Tag> u8;
  const size_t lanes = hn::Lanes(f32);
  const auto divisor = hn::Set(f32, scale), middle = hn::Set(f32, static_cast<float>(zero));
  const auto nan = hn::Set(f32, static_cast<float>(nanCode));
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::DemoteTo(u8, codesOf(hn::LoadU(f32, values + i), divisor, middle, nan)), u8,
               codes + i);
  if (i == count)
    return;
  HWY_ALIGN float last[kMaxLanes] = {};
  HWY_ALIGN uint8_t written[kMaxLanes];
  std::copy(values + i, values + count, last);
  hn::StoreU(hn::DemoteTo(u8, codesOf(hn::Load(f32, last), divisor, middle, nan)), u8, written);
  std::copy_n(written, count - i, codes + i);
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(findRange);
HWY_EXPORT(quantizeAll);

ValueRange rangeOf(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(findRange)(values, count);
}

void quantizeRange(const float* values, size_t count, float scale, uint8_t zero, uint8_t nanCode,
                   uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(quantizeAll)(values, count, scale, zero, nanCode, codes);
}

} // namespace kvopt::simd
#endif // HWY_ONCE
