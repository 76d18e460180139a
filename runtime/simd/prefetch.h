// Asking for memory ahead of its use.
#pragma once

#include <hwy/base.h>

#include <cstdint>

namespace kvopt::simd {

/// Asks for a cache line, into the second-level cache: the first level can wait for few lines at a
/// time, and those are of the work. A prefetch never faults, so the address may lie outside of any
/// object.
HWY_INLINE void prefetchLine(const void* address) {
  __builtin_prefetch(address, /*for writing*/ 0, /*second-level cache*/ 2);
}

/// Unit-stride loops prefetch one cache line in so many bytes: the core's own prefetchers bring the
/// others (decision 18).
inline constexpr int64_t straightBytes = 256;

/// Prefetches the first line of the straightBytes around an address: its neighbors' would not come
/// in time.
HWY_INLINE void prefetchStraight(intptr_t address) {
  prefetchLine(reinterpret_cast<const void*>(address & -straightBytes));
}

} // namespace kvopt::simd
