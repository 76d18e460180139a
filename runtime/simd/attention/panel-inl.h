// Product of prefill attention in register blocks, with n in lanes, and the packing of its
// operands.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_PANEL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_PANEL_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_PANEL_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_PANEL_INL_H
#endif

#include "runtime/simd/vector-inl.h"

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

/// Number of rows of a register block: with three vectors of lanes and one vector of factors, it
/// fits into 32 or 16 registers.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_ARCH_ARM_A64 || HWY_ARCH_RVV
inline constexpr size_t kPanelRows = 8;
#else
inline constexpr size_t kPanelRows = 4;
#endif

/// Operands of out[i, lane] = out[i, lane] * correction[lane] + sum_r left(i, r) * right[r, lane]
/// for kPanelRows rows i.
struct PanelProduct {
  const float* left;
  size_t leftStride; ///< between the rows of `left`, unless they are interleaved
  const float* right;
  size_t steps;            ///< r < steps
  const float* correction; ///< null: overwrites `out`
  float* out;
  size_t lanes; ///< distance between the rows of `right`, and of `out`
};

template <int Vectors>
HWY_INLINE void multiplyAddRow(const float* factor, F32Vec x, F32Vec y, F32Vec z, F32Vec& a,
                               F32Vec& b, F32Vec& c) {
  const auto f = hn::Set(F32Tag(), *factor);
  a = hn::MulAdd(f, x, a);
  if constexpr (Vectors > 1)
    b = hn::MulAdd(f, y, b);
  if constexpr (Vectors > 2)
    c = hn::MulAdd(f, z, c);
}

template <int Vectors>
HWY_INLINE void scaleRow(const float* row, F32Vec x, F32Vec y, F32Vec z, F32Vec& a, F32Vec& b,
                         F32Vec& c) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  a = hn::Mul(hn::LoadU(f32, row), x);
  if constexpr (Vectors > 1)
    b = hn::Mul(hn::LoadU(f32, row + lanes), y);
  if constexpr (Vectors > 2)
    c = hn::Mul(hn::LoadU(f32, row + 2 * lanes), z);
}

template <int Vectors> HWY_INLINE void storeRow(F32Vec a, F32Vec b, F32Vec c, float* row) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  hn::StoreU(a, f32, row);
  if constexpr (Vectors > 1)
    hn::StoreU(b, f32, row + lanes);
  if constexpr (Vectors > 2)
    hn::StoreU(c, f32, row + 2 * lanes);
}

/// One register block: kPanelRows rows times `Vectors` vectors. `left` holds row after row or, with
/// `Interleaved`, kPanelRows elements for each r. Every element is one chain of multiply-adds in
/// the order of r. The accumulators a, b and c of each row are separate variables, because a
/// compiler may keep arrays in memory.
template <bool Interleaved, int Vectors> void multiplyPanel(const PanelProduct& p) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  const size_t stride = p.lanes;
  float* HWY_RESTRICT out = p.out;
  auto a0 = hn::Zero(f32), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0;
  auto b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0, b6 = a0, b7 = a0;
  auto c0 = a0, c1 = a0, c2 = a0, c3 = a0, c4 = a0, c5 = a0, c6 = a0, c7 = a0;
  if (p.correction) {
    const auto x = hn::LoadU(f32, p.correction);
    const auto y = Vectors > 1 ? hn::LoadU(f32, p.correction + lanes) : x;
    const auto z = Vectors > 2 ? hn::LoadU(f32, p.correction + 2 * lanes) : x;
    scaleRow<Vectors>(out, x, y, z, a0, b0, c0);
    scaleRow<Vectors>(out + stride, x, y, z, a1, b1, c1);
    scaleRow<Vectors>(out + 2 * stride, x, y, z, a2, b2, c2);
    scaleRow<Vectors>(out + 3 * stride, x, y, z, a3, b3, c3);
    if constexpr (kPanelRows > 4) {
      scaleRow<Vectors>(out + 4 * stride, x, y, z, a4, b4, c4);
      scaleRow<Vectors>(out + 5 * stride, x, y, z, a5, b5, c5);
      scaleRow<Vectors>(out + 6 * stride, x, y, z, a6, b6, c6);
      scaleRow<Vectors>(out + 7 * stride, x, y, z, a7, b7, c7);
    }
  }

  const size_t leftStride = Interleaved ? 1 : p.leftStride;
  constexpr size_t kStep = Interleaved ? kPanelRows : 1;
  const float* HWY_RESTRICT left = p.left;
  const float* HWY_RESTRICT upper = left + 4 * leftStride;
  const float* HWY_RESTRICT right = p.right;
  for (size_t r = 0; r < p.steps; ++r) {
    const auto x = hn::LoadU(f32, right);
    const auto y = Vectors > 1 ? hn::LoadU(f32, right + lanes) : x;
    const auto z = Vectors > 2 ? hn::LoadU(f32, right + 2 * lanes) : x;
    multiplyAddRow<Vectors>(left, x, y, z, a0, b0, c0);
    multiplyAddRow<Vectors>(left + leftStride, x, y, z, a1, b1, c1);
    multiplyAddRow<Vectors>(left + 2 * leftStride, x, y, z, a2, b2, c2);
    multiplyAddRow<Vectors>(left + 3 * leftStride, x, y, z, a3, b3, c3);
    if constexpr (kPanelRows > 4) {
      multiplyAddRow<Vectors>(upper, x, y, z, a4, b4, c4);
      multiplyAddRow<Vectors>(upper + leftStride, x, y, z, a5, b5, c5);
      multiplyAddRow<Vectors>(upper + 2 * leftStride, x, y, z, a6, b6, c6);
      multiplyAddRow<Vectors>(upper + 3 * leftStride, x, y, z, a7, b7, c7);
    }
    left += kStep;
    upper += kStep;
    right += stride;
  }

  storeRow<Vectors>(a0, b0, c0, out);
  storeRow<Vectors>(a1, b1, c1, out + stride);
  storeRow<Vectors>(a2, b2, c2, out + 2 * stride);
  storeRow<Vectors>(a3, b3, c3, out + 3 * stride);
  if constexpr (kPanelRows > 4) {
    storeRow<Vectors>(a4, b4, c4, out + 4 * stride);
    storeRow<Vectors>(a5, b5, c5, out + 5 * stride);
    storeRow<Vectors>(a6, b6, c6, out + 6 * stride);
    storeRow<Vectors>(a7, b7, c7, out + 7 * stride);
  }
}

template <bool Interleaved> void multiplyPanel(const PanelProduct& product, size_t vectors) {
  if (vectors == 3)
    multiplyPanel<Interleaved, 3>(product);
  else if (vectors == 2)
    multiplyPanel<Interleaved, 2>(product);
  else
    multiplyPanel<Interleaved, 1>(product);
}

/// Widens `count` elements.
template <class Storage>
HWY_INLINE void widenRow(const typename Storage::Element* from, size_t count,
                         float* HWY_RESTRICT to) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  if (count < lanes) {
    for (size_t i = 0; i < count; ++i)
      to[i] = toFloat(Storage(), from[i]);
    return;
  }
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(load(Storage(), from + i), f32, to + i);
  if (i < count)
    hn::StoreU(load(Storage(), from + count - lanes), f32, to + count - lanes);
}

/// Copies blocks of kPanelRows elements of a row of `count`, a multiple of that, to addresses with
/// distance `stride`.
HWY_INLINE void deal(const float* HWY_RESTRICT row, size_t count, float* HWY_RESTRICT to,
                     size_t stride) {
  const hn::CappedTag<float, kPanelRows> tag;
  for (size_t i = 0; i < count; i += kPanelRows, to += stride)
    for (size_t j = 0; j < kPanelRows; j += hn::Lanes(tag))
      hn::StoreU(hn::LoadU(tag, row + i + j), tag, to + j);
}

#if HWY_TARGET != HWY_SCALAR
#if HWY_HAVE_SCALABLE
using TransposeTag = hn::CappedTag<float, 4>;
#else
using TransposeTag = F32Tag;
#endif

/// A vector of blocks of four lanes: block k has four elements, starting at rows[4 * k] + at.
template <class Tag>
HWY_INLINE hn::Vec<Tag> loadBlocks(Tag tag, const float* const* rows, size_t at) {
  if constexpr (hn::MaxLanes(Tag()) <= 4) {
    return hn::LoadU(tag, rows[0] + at);
  } else {
    const hn::Half<Tag> half;
    return hn::Combine(tag, loadBlocks(half, rows + hn::Lanes(half), at),
                       loadBlocks(half, rows, at));
  }
}
#endif

/// out[i * stride + q] = rows[q][i] for i < count and q < n, a multiple of the lanes of F32Tag.
HWY_INLINE void transpose(const float* const* rows, size_t n, size_t count, float* HWY_RESTRICT out,
                          size_t stride) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t q = 0; q < n; ++q)
    for (size_t i = 0; i < count; ++i)
      out[i * stride + q] = rows[q][i];
#else
  const TransposeTag tag;
  const size_t lanes = hn::Lanes(tag);
  for (size_t q = 0; q < n; q += lanes, rows += lanes) {
    float* to = out + q;
    const size_t whole = count - count % 4;
    for (size_t i = 0; i < whole; i += 4, to += 4 * stride) {
      const auto a = loadBlocks(tag, rows, i), b = loadBlocks(tag, rows + 1, i);
      const auto c = loadBlocks(tag, rows + 2, i), d = loadBlocks(tag, rows + 3, i);
      const auto acLower = hn::InterleaveLower(tag, a, c);
      const auto bdLower = hn::InterleaveLower(tag, b, d);
      const auto acUpper = hn::InterleaveUpper(tag, a, c);
      const auto bdUpper = hn::InterleaveUpper(tag, b, d);
      hn::StoreU(hn::InterleaveLower(tag, acLower, bdLower), tag, to);
      hn::StoreU(hn::InterleaveUpper(tag, acLower, bdLower), tag, to + stride);
      hn::StoreU(hn::InterleaveLower(tag, acUpper, bdUpper), tag, to + 2 * stride);
      hn::StoreU(hn::InterleaveUpper(tag, acUpper, bdUpper), tag, to + 3 * stride);
    }
    for (size_t i = whole; i < count; ++i, to += stride)
      for (size_t lane = 0; lane < lanes; ++lane)
        to[lane] = rows[lane][i];
  }
#endif
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
