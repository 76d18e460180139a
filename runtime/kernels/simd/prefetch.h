// Asking for memory ahead of its use.
#pragma once

#include <hwy/base.h>

namespace kvopt {

/// Asks for a cache line, into the second-level cache: the first level can wait for few lines at a
/// time, and those are of the work. A prefetch never faults, so the address may lie outside of any
/// object.
HWY_INLINE void prefetchLine(const void* address) {
  __builtin_prefetch(address, /*for writing*/ 0, /*second-level cache*/ 2);
}

} // namespace kvopt
