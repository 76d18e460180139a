// Vectorized elementwise math on 16-bit floats: blocks of elements are widened to f32, computed,
// and rounded together.
#pragma once

#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/simd/elementwise.h"

#include <algorithm>
#include <array>

namespace kvopt::kernels {

template <class T>
inline constexpr bool isNarrowFloat = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

/// Number of elements in a block; their f32 values fit into the first-level cache.
inline constexpr int64_t narrowBlock = 512;

/// Converts `count` elements with stride `by`, or one repeated element (by = 0), to f32.
template <class T> void widen(const T* in, int64_t by, float* out, int64_t count) {
  static_assert(isNarrowFloat<T> && sizeof(T) == sizeof(uint16_t));
  if (by == 0) {
    std::fill_n(out, count, load(*in));
  } else if (by != 1) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = load(in[i * by]);
  } else if constexpr (std::is_same_v<T, Float16>) {
    simd::convertF16ToF32(&in->bits, out, static_cast<size_t>(count));
  } else {
    simd::convertBf16ToF32(&in->bits, out, static_cast<size_t>(count));
  }
}

/// Rounds to nearest, ties to even.
template <class T> void narrow(const float* in, T* out, int64_t count) {
  static_assert(isNarrowFloat<T> && sizeof(T) == sizeof(uint16_t));
  if constexpr (std::is_same_v<T, Float16>)
    simd::convertF32ToF16(in, &out->bits, static_cast<size_t>(count));
  else
    simd::convertF32ToBf16(in, &out->bits, static_cast<size_t>(count));
}

/// out[i] = f(in[i]) for 0 <= i < count, where f is a function of f32.
template <class T, class F> void mapNarrow(const T* in, T* out, int64_t count, F f) {
  float values[narrowBlock];
  for (int64_t begin = 0; begin < count; begin += narrowBlock) {
    const int64_t block = std::min(narrowBlock, count - begin);
    widen(in + begin, 1, values, block);
    for (int64_t i = 0; i < block; ++i)
      values[i] = f(values[i]);
    narrow(values, out + begin, block);
  }
}

/// broadcastLoop() for a function f of f32.
template <class T, class F>
void broadcastNarrow(runtime::KernelContext& context, llvm::ArrayRef<int64_t> shape,
                     const runtime::TensorView& a, const runtime::TensorView& b, T* out, F f) {
  forBroadcastRows(context, shape, a, b,
                   [&](int64_t start, const std::array<int64_t, 2>& at, int64_t count,
                       const std::array<int64_t, 2>& by) {
                     float x[narrowBlock], y[narrowBlock];
                     for (int64_t begin = 0; begin < count; begin += narrowBlock) {
                       const int64_t block = std::min(narrowBlock, count - begin);
                       widen(a.as<T>() + at[0] + begin * by[0], by[0], x, block);
                       widen(b.as<T>() + at[1] + begin * by[1], by[1], y, block);
                       for (int64_t i = 0; i < block; ++i)
                         x[i] = f(x[i], y[i]);
                       narrow(x, out + start + begin, block);
                     }
                   });
}

} // namespace kvopt::kernels
