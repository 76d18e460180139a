// Vector building blocks of kernels: loads that widen to f32, tails of rows, exp and tanh.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_VECTOR_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_VECTOR_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_VECTOR_INL_H
#endif

#include "runtime/simd/four_bit_products.h"
#include "support/half.h"

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// At most 16 lanes, so that packed rows have the same width for all targets.
using F32Tag = hn::CappedTag<float, 16>;
using F32Vec = hn::Vec<F32Tag>;
using U32Tag = hn::RebindToUnsigned<F32Tag>;
using U16Tag = hn::Rebind<uint16_t, F32Tag>;

inline constexpr size_t kMaxLanes = 16;

/// Whether 16 accumulators and their operands fit into registers (32 instead of 16).
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_ARCH_ARM_A64
inline constexpr bool kManyRegisters = true;
#else
inline constexpr bool kManyRegisters = false;
#endif

/// Storage formats; arithmetic is f32 for each.
struct F32Storage {
  using Element = float;
};
struct F16Storage {
  using Element = uint16_t;
};
struct Bf16Storage {
  using Element = uint16_t;
};
/// Integers that are multiplied by a scale of the row elsewhere.
struct I8Storage {
  using Element = int8_t;
};

/// Rows of four-bit codes (support/four_bit_row.h), in whole groups of 32 columns.
struct FourBitStorage {
  using Element = uint8_t;
};

/// Size in bytes of `columns` adjacent columns; whole groups for four-bit codes.
template <class Storage> constexpr size_t storedBytes(size_t columns) {
  if constexpr (std::is_same_v<Storage, FourBitStorage>)
    return columns / 32 * static_cast<size_t>(FourBitRow{32}.bytes());
  else
    return columns * sizeof(typename Storage::Element);
}

inline float toFloat(F32Storage, float value) { return value; }
inline float toFloat(F16Storage, uint16_t bits) { return f16ToFloat(bits); }
inline float toFloat(Bf16Storage, uint16_t bits) { return bf16ToFloat(bits); }
inline float toFloat(I8Storage, int8_t code) { return static_cast<float>(code); }

HWY_INLINE F32Vec load(F32Storage, const float* from) { return hn::LoadU(F32Tag(), from); }

using U16Vec = hn::Vec<U16Tag>;

HWY_INLINE F32Vec widen(Bf16Storage, U16Vec stored) {
  const auto bits = hn::PromoteTo(U32Tag(), stored);
  return hn::BitCast(F32Tag(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE F32Vec load(I8Storage, const int8_t* from) {
  const hn::Rebind<int8_t, F32Tag> i8;
  const hn::RebindToSigned<F32Tag> i32;
  return hn::ConvertTo(F32Tag(), hn::PromoteTo(i32, hn::LoadU(i8, from)));
}

/// Uses only the instruction: Highway's emulated conversion treats infinity and NaN as numbers.
HWY_INLINE F32Vec widen(F16Storage, U16Vec stored) {
  const F32Tag f32;
  const U32Tag u32;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL ||               \
    HWY_ARCH_ARM_A64
  const hn::Rebind<hwy::float16_t, F32Tag> f16;
  (void)u32;
  return hn::PromoteTo(f32, hn::BitCast(f16, stored));
#else
  // With the exponent field moved, f16 numbers, including subnormals, are 2^112 times too small as
  // f32.
  const auto bits = hn::PromoteTo(u32, stored);
  const auto magnitude = hn::And(bits, hn::Set(u32, 0x7FFFu));
  const auto scaled =
      hn::Mul(hn::BitCast(f32, hn::ShiftLeft<13>(magnitude)), hn::Set(f32, 0x1p112f));
  const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(u32, 0x7F800000u));
  const auto isSpecial = hn::Ge(scaled, hn::Set(f32, 65536.0f));
  const auto value = hn::IfThenElse(isSpecial, hn::BitCast(f32, special), scaled);
  const auto sign = hn::ShiftLeft<16>(hn::AndNot(hn::Set(u32, 0x7FFFu), bits));
  return hn::Or(value, hn::BitCast(f32, sign));
#endif
}

template <class Storage> HWY_INLINE F32Vec load(Storage storage, const uint16_t* from) {
  return widen(storage, hn::LoadU(U16Tag(), from));
}

/// Whether the target reads rows of four-bit codes directly, with a table of sixteen floats in one
/// register.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr bool kReadsFourBitRows = true;

/// Loads a group of 32 columns, which is two vectors.
HWY_INLINE void load(FourBitStorage, const uint8_t* group, F32Vec& first, F32Vec& second) {
  const __m512i bytes =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(group)));
  const __m512 numbers = _mm512_load_ps(fourBitNumbers.of(group[16]));
  // Only the lowest four bits of an index count.
  first = F32Vec{_mm512_permutexvar_ps(bytes, numbers)};
  second = F32Vec{_mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), numbers)};
}
#else
inline constexpr bool kReadsFourBitRows = false;
inline void load(FourBitStorage, const uint8_t*, F32Vec&, F32Vec&) {}
#endif

/// Loads two adjacent vectors; a single load if that is a cache line of 16-bit elements, which is
/// faster.
template <class Storage>
HWY_INLINE void loadPair(Storage storage, const typename Storage::Element* from, F32Vec& first,
                         F32Vec& second) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (sizeof(*from) == sizeof(uint16_t)) {
    const auto line = hn::LoadU(hn::Repartition<uint16_t, F32Tag>(), from);
    first = widen(storage, hn::LowerHalf(U16Tag(), line));
    second = widen(storage, hn::UpperHalf(U16Tag(), line));
    return;
  }
#endif
  first = load(storage, from);
  second = load(storage, from + hn::Lanes(F32Tag()));
}

/// The last `count` < Lanes elements before `end`, in the last lanes; zero in the lanes before.
/// `readable` elements before `end` may be read: a single load suffices for a whole vector of them.
template <class Storage>
HWY_INLINE F32Vec loadLast(const typename Storage::Element* end, size_t count, size_t readable) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  if (readable >= lanes)
    return hn::IfThenZeroElse(hn::FirstN(f32, lanes - count), load(Storage(), end - lanes));
  HWY_ALIGN float buffer[kMaxLanes] = {};
  for (size_t i = 1; i <= count; ++i)
    buffer[lanes - i] = toFloat(Storage(), *(end - i));
  return hn::LoadU(f32, buffer);
}

/// e^x for x <= 88 or NaN, within 2 ulp; exactly 1 at 0, and 0 if the result would be below the
/// smallest normal number. Computed as 2^n times a polynomial on |r| <= ln(2)/2 with an error of
/// 0.09 ulp.
HWY_INLINE F32Vec exp(F32Vec x) {
  const F32Tag f32;
  const hn::RebindToSigned<F32Tag> i32;
  const auto smallest = hn::Set(f32, -87.33654f);
  const auto bounded = hn::Min(hn::Max(x, smallest), hn::Set(f32, 88.0f));
  // Adding 1.5 * 2^23 leaves the nearest integer in the lowest bits.
  const auto integer = hn::Set(f32, 0x1.8p23f);
  const auto shifted = hn::MulAdd(bounded, hn::Set(f32, 1.44269502f), integer);
  const auto n = hn::Sub(shifted, integer);
  // ln(2) in two parts: the product of n and the first, of 15 bits, is exact.
  auto r = hn::NegMulAdd(n, hn::Set(f32, 0x1.62e4p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(f32, 1.42860677e-06f), r);
  auto p = hn::MulAdd(r, hn::Set(f32, 0.00139262131f), hn::Set(f32, 0.00836320315f));
  p = hn::MulAdd(r, p, hn::Set(f32, 0.0416665561f));
  p = hn::MulAdd(r, p, hn::Set(f32, 0.166665763f));
  p = hn::MulAdd(r, p, hn::Set(f32, 0.5f));
  p = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(f32, 1.0f));
  // The other bits are shifted out.
  const auto exponent = hn::Add(hn::BitCast(i32, shifted), hn::Set(i32, 127));
  const auto power = hn::BitCast(f32, hn::ShiftLeft<23>(exponent));
  return hn::IfThenZeroElse(hn::Lt(x, smallest), hn::Mul(p, power));
}

/// tanh(x) within 4 ulp: an odd polynomial near 0, 1 - 2 / (e^(2|x|) + 1) elsewhere.
HWY_INLINE F32Vec tanh(F32Vec x) {
  const F32Tag f32;
  const auto one = hn::Set(f32, 1.0f);
  const auto magnitude = hn::Abs(x);
  const auto square = hn::Mul(x, x);
  auto p = hn::MulAdd(square, hn::Set(f32, -0.00609671418f), hn::Set(f32, 0.0209971797f));
  p = hn::MulAdd(square, p, hn::Set(f32, -0.0538509078f));
  p = hn::MulAdd(square, p, hn::Set(f32, 0.133327693f));
  p = hn::MulAdd(square, p, hn::Set(f32, -0.333333284f));
  const auto nearZero = hn::MulAdd(hn::Mul(square, magnitude), p, magnitude);
  const auto bounded = hn::Min(hn::Set(f32, 10.0f), magnitude);
  const auto power = exp(hn::Add(bounded, bounded));
  const auto far = hn::Sub(one, hn::Div(hn::Set(f32, 2.0f), hn::Add(power, one)));
  const auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(f32, 0.625f)), nearZero, far);
  return hn::CopySignToAbs(result, x);
}

/// Writes the sums over the lanes of a, b, c and d to out[0..4).
HWY_INLINE void sumLanes4(F32Vec a, F32Vec b, F32Vec c, F32Vec d, float* HWY_RESTRICT out) {
  const F32Tag f32;
#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE
  out[0] = hn::GetLane(hn::SumOfLanes(f32, a));
  out[1] = hn::GetLane(hn::SumOfLanes(f32, b));
  out[2] = hn::GetLane(hn::SumOfLanes(f32, c));
  out[3] = hn::GetLane(hn::SumOfLanes(f32, d));
#else
  // Within each block of four lanes, two rounds of interleaving leave one sum per lane.
  const auto ac = hn::Add(hn::InterleaveLower(f32, a, c), hn::InterleaveUpper(f32, a, c));
  const auto bd = hn::Add(hn::InterleaveLower(f32, b, d), hn::InterleaveUpper(f32, b, d));
  const auto sums = hn::Add(hn::InterleaveLower(f32, ac, bd), hn::InterleaveUpper(f32, ac, bd));
  const hn::CappedTag<float, 4> block;
  HWY_ALIGN float blocks[kMaxLanes];
  hn::Store(sums, f32, blocks);
  auto total = hn::Load(block, blocks);
  for (size_t lane = 4; lane < hn::Lanes(f32); lane += 4)
    total = hn::Add(total, hn::Load(block, blocks + lane));
  hn::StoreU(total, block, out);
#endif
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
