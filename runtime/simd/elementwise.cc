// Softmax, dot product and storage conversions with Google Highway.
#include "runtime/simd/elementwise.h"

#include <limits>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {
namespace {

/// Loads up to a vector of elements; missing ones are `filler`.
HWY_INLINE F32Vec loadFirst(const float* from, size_t count, float filler) {
  const F32Tag f32;
  HWY_ALIGN float buffer[kMaxLanes];
  for (size_t i = 0; i < hn::Lanes(f32); ++i)
    buffer[i] = i < count ? from[i] : filler;
  return hn::Load(f32, buffer);
}

HWY_INLINE void storeFirst(F32Vec vector, float* to, size_t count) {
  const F32Tag f32;
  HWY_ALIGN float buffer[kMaxLanes];
  hn::Store(vector, f32, buffer);
  for (size_t i = 0; i < count; ++i)
    to[i] = buffer[i];
}

template <class Storage> void widen(const uint16_t* in, float* out, size_t count) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(load(Storage(), in + i), f32, out + i);
  for (; i < count; ++i)
    out[i] = toFloat(Storage(), in[i]);
}

} // namespace

void softmaxRow(const float* in, float* out, size_t count) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  const float minusInfinity = -std::numeric_limits<float>::infinity();
  const size_t whole = count - count % lanes;
  const size_t tail = count - whole;
  auto largest = hn::Set(f32, minusInfinity);
  for (size_t i = 0; i < whole; i += lanes)
    largest = hn::Max(largest, hn::LoadU(f32, in + i));
  if (tail != 0)
    largest = hn::Max(largest, loadFirst(in + whole, tail, minusInfinity));
  const auto shift = hn::MaxOfLanes(f32, largest);
  auto sums = hn::Zero(f32);
  for (size_t i = 0; i < whole; i += lanes) {
    const auto power = exp(hn::Sub(hn::LoadU(f32, in + i), shift));
    hn::StoreU(power, f32, out + i);
    sums = hn::Add(sums, power);
  }
  if (tail != 0) {
    const auto power = exp(hn::Sub(loadFirst(in + whole, tail, minusInfinity), shift));
    storeFirst(power, out + whole, tail);
    sums = hn::Add(sums, power);
  }
  const auto sum = hn::SumOfLanes(f32, sums);
  for (size_t i = 0; i < whole; i += lanes)
    hn::StoreU(hn::Div(hn::LoadU(f32, out + i), sum), f32, out + i);
  for (size_t i = whole; i < count; ++i)
    out[i] /= hn::GetLane(sum);
}

float dot(const float* a, const float* b, size_t count) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  auto s0 = hn::Zero(f32), s1 = s0, s2 = s0, s3 = s0;
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = hn::MulAdd(hn::LoadU(f32, a + i), hn::LoadU(f32, b + i), s0);
    s1 = hn::MulAdd(hn::LoadU(f32, a + i + lanes), hn::LoadU(f32, b + i + lanes), s1);
    s2 = hn::MulAdd(hn::LoadU(f32, a + i + 2 * lanes), hn::LoadU(f32, b + i + 2 * lanes), s2);
    s3 = hn::MulAdd(hn::LoadU(f32, a + i + 3 * lanes), hn::LoadU(f32, b + i + 3 * lanes), s3);
  }
  for (; i + lanes <= count; i += lanes)
    s0 = hn::MulAdd(hn::LoadU(f32, a + i), hn::LoadU(f32, b + i), s0);
  if (const size_t tail = count - i; tail != 0)
    s1 = hn::MulAdd(loadLast<F32Storage>(a + count, tail, count),
                    loadLast<F32Storage>(b + count, tail, count), s1);
  return hn::GetLane(hn::SumOfLanes(f32, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

void convertF16ToF32(const uint16_t* in, float* out, size_t count) {
  widen<F16Storage>(in, out, count);
}

void convertBf16ToF32(const uint16_t* in, float* out, size_t count) {
  widen<Bf16Storage>(in, out, count);
}

void convertF32ToF16(const float* in, uint16_t* out, size_t count) {
  size_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL ||               \
    HWY_ARCH_ARM_A64
  const F32Tag f32;
  const U16Tag u16;
  const hn::Rebind<hwy::float16_t, F32Tag> f16;
  const size_t lanes = hn::Lanes(f32);
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::BitCast(u16, hn::DemoteTo(f16, hn::LoadU(f32, in + i))), u16, out + i);
#endif
  for (; i < count; ++i)
    out[i] = floatToF16(in[i]);
}

void convertF32ToBf16(const float* in, uint16_t* out, size_t count) {
  // Integer arithmetic without branches, which the compiler vectorizes for the target.
  for (size_t i = 0; i < count; ++i)
    out[i] = floatToBf16(in[i]);
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(softmaxRow);
HWY_EXPORT(dot);
HWY_EXPORT(convertF16ToF32);
HWY_EXPORT(convertBf16ToF32);
HWY_EXPORT(convertF32ToF16);
HWY_EXPORT(convertF32ToBf16);

void softmaxRow(const float* in, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(softmaxRow)(in, out, count);
}

float dot(const float* a, const float* b, size_t count) {
  return HWY_DYNAMIC_DISPATCH(dot)(a, b, count);
}

void convertF16ToF32(const uint16_t* in, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(convertF16ToF32)(in, out, count);
}

void convertBf16ToF32(const uint16_t* in, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(convertBf16ToF32)(in, out, count);
}

void convertF32ToF16(const float* in, uint16_t* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(convertF32ToF16)(in, out, count);
}

void convertF32ToBf16(const float* in, uint16_t* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(convertF32ToBf16)(in, out, count);
}

} // namespace kvopt::simd
#endif // HWY_ONCE
