// Which pages of memory there are: those that were touched.
#pragma once

#include "runtime/memory/page_memory.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
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
  auto first = reinterpret_cast<uintptr_t>(data) & ~(runtime::pageBytes() - 1);
  auto length = reinterpret_cast<uintptr_t>(data) + bytes - first;
  std::vector<unsigned char> there((length + runtime::pageBytes() - 1) / runtime::pageBytes());
  if (::mincore(reinterpret_cast<void*>(first), length, there.data()) != 0)
    return -1;
  int64_t count = 0;
  for (unsigned char page : there)
    count += page & 1;
  return count;
}

/// Whether the kernel was asked for large pages for the mapping in which `data` lies.
inline bool prefersLargePages(const std::byte* data) {
  std::ifstream mappings("/proc/self/smaps");
  const auto address = reinterpret_cast<uintptr_t>(data);
  bool isThis = false;
  for (std::string line; std::getline(mappings, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2)
      isThis = begin <= address && address < end;
    else if (isThis && line.compare(0, 8, "VmFlags:") == 0)
      return line.find(" hg") != std::string::npos;
  }
  return false;
}

} // namespace kvopt::test
