// Which pages of memory there are: those that were touched.
#pragma once

#include "runtime/page_memory.h"

#include <cstdint>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <vector>

namespace kvopt::test {

/// While it lives, the kernel finds the pages that are touched and no others beside them.
class SmallPagesOnly {
public:
  SmallPagesOnly() { ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }
  SmallPagesOnly(const SmallPagesOnly&) = delete;
  ~SmallPagesOnly() { ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
};

/// Pages in which `bytes` bytes from `data` lie, and which are resident.
inline int64_t residentPages(const std::byte* data, size_t bytes) {
  auto first = reinterpret_cast<uintptr_t>(data) & ~(pageBytes() - 1);
  auto length = reinterpret_cast<uintptr_t>(data) + bytes - first;
  std::vector<unsigned char> there((length + pageBytes() - 1) / pageBytes());
  if (::mincore(reinterpret_cast<void*>(first), length, there.data()) != 0)
    return -1;
  int64_t count = 0;
  for (unsigned char page : there)
    count += page & 1;
  return count;
}

} // namespace kvopt::test
