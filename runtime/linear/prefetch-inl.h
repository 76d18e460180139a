// Prefetch distances of the kernels of linear layers.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_LINEAR_PREFETCH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_LINEAR_PREFETCH_INL_H
#undef KVOPT_RUNTIME_LINEAR_PREFETCH_INL_H
#else
#define KVOPT_RUNTIME_LINEAR_PREFETCH_INL_H
#endif

#include "runtime/simd/prefetch.h"
#include "runtime/simd/vector-inl.h"

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace kvopt::linear::HWY_NAMESPACE {
using namespace simd;
using namespace simd::HWY_NAMESPACE;

/// Prefetch distance if every line is prefetched.
inline constexpr size_t kPrefetchBytes = 2048;
/// Prefetch distance of a sequential loop that is limited by memory.
inline constexpr intptr_t kStraightAhead = 4096;

/// Prefetches the cache lines of `BytesPerLane` * lanes bytes.
template <size_t BytesPerLane, class Element> HWY_INLINE void prefetch(const Element* address) {
  const size_t bytes = BytesPerLane * hn::Lanes(F32Tag());
  for (size_t at = 0; at < bytes; at += 64)
    prefetchLine(reinterpret_cast<const char*>(address) + at);
}

/// For a sequential loop at `offset` bytes from its start: prefetches the line kStraightAhead bytes
/// later, once per straightBytes.
HWY_INLINE void prefetchStraightAhead(const void* address, size_t offset) {
  if (offset % size_t{straightBytes} == 0)
    prefetchStraight(reinterpret_cast<intptr_t>(address) + kStraightAhead);
}

} // namespace kvopt::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
