// How far ahead the kernels of linear layers prefetch.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_LINEAR_PREFETCH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_LINEAR_PREFETCH_INL_H
#undef KVOPT_RUNTIME_LINEAR_PREFETCH_INL_H
#else
#define KVOPT_RUNTIME_LINEAR_PREFETCH_INL_H
#endif

#include "runtime/kernels/simd/prefetch.h"
#include "runtime/kernels/simd/vector-inl.h"

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace kvopt::HWY_NAMESPACE {

/// How far ahead of its use a cache line is asked for.
inline constexpr size_t kPrefetchBytes = 2048;

/// Asks for the cache lines of `BytesPerLane` * lanes bytes.
template <size_t BytesPerLane, class Element> HWY_INLINE void prefetch(const Element* address) {
  const size_t bytes = BytesPerLane * hn::Lanes(F32Tag());
  for (size_t at = 0; at < bytes; at += 64)
    prefetchLine(reinterpret_cast<const char*>(address) + at);
}

} // namespace kvopt::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
