// Prefetching of memory.
#pragma once

#include <hwy/base.h>

#include <cstdint>

namespace kvopt::simd {

/// Prefetches a cache line into the second-level cache: the first level can wait for only a few
/// lines at a time, which are those of the current work. A prefetch never faults, so the address
/// may be outside of any object.
HWY_INLINE void prefetchLine(const void* address) {
  __builtin_prefetch(address, /*for writing*/ 0, /*second-level cache*/ 2);
}

/// Number of bytes per prefetched cache line in unit-stride loops; the hardware prefetchers load
/// the other lines (decision 18).
inline constexpr int64_t straightBytes = 256;

/// Prefetches the first line of the straightBytes bytes around an address; prefetches of its
/// neighbors would come too late.
HWY_INLINE void prefetchStraight(intptr_t address) {
  prefetchLine(reinterpret_cast<const void*>(address & -straightBytes));
}

} // namespace kvopt::simd
