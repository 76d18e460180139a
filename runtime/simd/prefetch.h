// Asking for memory ahead of its use.
#pragma once

#include <hwy/base.h>

#include <cstddef>
#include <cstdint>

namespace kvopt::simd {

/// Asks for a cache line, into the second-level cache: the first level can wait for few lines at a
/// time, and those are of the work. A prefetch never faults, so the address may lie outside of any
/// object.
HWY_INLINE void prefetchLine(const void* address) {
  __builtin_prefetch(address, /*for writing*/ 0, /*second-level cache*/ 2);
}

/// Who goes straight on through memory asks once in so many bytes.
inline constexpr int64_t straightBytes = 256;

/// Whether to prefetch all lines of these bytes. The prefetchers of other vendors' cores fetch the
/// rest once the first is requested, and further requests compete with them; those of Intel's do
/// not (decision 18).
extern const bool asksForEachLine;

/// Asks for the straightBytes around an address, or for their first line: others' neighbours would
/// not come in time.
HWY_INLINE void prefetchStraight(intptr_t address, bool eachLine = asksForEachLine) {
  constexpr int64_t kLine = 64;
  const auto* first = reinterpret_cast<const std::byte*>(address & -straightBytes);
  prefetchLine(first);
  if (HWY_UNLIKELY(eachLine))
    for (int64_t at = kLine; at < straightBytes; at += kLine)
      prefetchLine(first + at);
}

} // namespace kvopt::simd
