// Anonymous mappings. Sanitizers see them as allocations with a forbidden page on both sides.
#include "runtime/memory/page_memory.h"

#include "llvm/Support/Compiler.h"
#include "llvm/Support/ErrorHandling.h"

#include <cassert>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <sys/mman.h>
#include <unistd.h>

namespace kvopt::runtime {

namespace {

constexpr int access = PROT_READ | PROT_WRITE;
constexpr int ownZeros = MAP_PRIVATE | MAP_ANONYMOUS;

/// Number of forbidden bytes before and after a mapping.
size_t fence() { return LLVM_ADDRESS_SANITIZER_BUILD ? pageBytes() : 0; }

/// Size in whole pages; 0 if it overflows, including fences.
size_t roundedUp(size_t bytes) {
  size_t last = pageBytes() - 1, rounded = 0;
  if (__builtin_add_overflow(bytes, last + 2 * fence(), &rounded))
    return 0;
  return (bytes + last) & ~last;
}

void unmap(std::byte* data, size_t bytes) {
  // The kernel refuses to split a mapping if a process has too many; the pages are released in any
  // case.
  if (bytes != 0 && ::munmap(data, bytes) != 0)
    ::madvise(data, bytes, MADV_DONTNEED);
}

/// False if nothing was moved. Then `to` may be unmapped.
bool moveRun(std::byte* from, size_t fromBytes, std::byte* to, size_t toBytes) {
#if defined(__linux__)
  return ::mremap(from, fromBytes, toBytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
#else
  (void)from, (void)fromBytes, (void)to, (void)toBytes;
  return false;
#endif
}

/// Maps memory at `data` unless it is mapped.
void refill(std::byte* data, size_t bytes) {
  // Returns ENOMEM for unmapped addresses, and has no effect on others.
  if (::msync(data, bytes, MS_ASYNC) == 0)
    return;
#if defined(MAP_FIXED_NOREPLACE)
  if (::mmap(data, bytes, access, ownZeros | MAP_FIXED_NOREPLACE, -1, 0) == data)
    return;
#endif
  llvm::report_bad_alloc_error("no memory for the rows of a cache");
}

} // namespace

size_t pageBytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

std::byte* mapPages(size_t bytes) {
  assert(bytes > 0);
  size_t mapped = roundedUp(bytes);
  if (mapped == 0)
    return nullptr;
  void* memory = ::mmap(nullptr, mapped + 2 * fence(), access, ownZeros, -1, 0);
  if (memory == MAP_FAILED)
    return nullptr;
  std::byte* data = static_cast<std::byte*>(memory) + fence();
  __asan_poison_memory_region(data - fence(), fence());
  __asan_poison_memory_region(data + bytes, mapped - bytes + fence());
  return data;
}

void unmapPages(std::byte* data, size_t bytes) {
  size_t mapped = roundedUp(bytes);
  __asan_unpoison_memory_region(data - fence(), mapped + 2 * fence());
  unmap(data - fence(), mapped + 2 * fence());
}

void preferLargePages(std::byte* data, size_t bytes) {
#if defined(MADV_HUGEPAGE)
  // Advice: kernels without large pages ignore it.
  ::madvise(data, (bytes + pageBytes() - 1) & ~(pageBytes() - 1), MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

bool PageRuns::isPaged() const {
  auto inPages = [](size_t value) { return value % pageBytes() == 0; };
  return inPages(reinterpret_cast<uintptr_t>(from)) && inPages(reinterpret_cast<uintptr_t>(to)) &&
         inPages(fromBytes) && inPages(toBytes) && fromBytes <= toBytes;
}

void movePages(const PageRuns& runs) {
  assert(runs.isPaged());
  size_t done = 0;
  // Moved and extended in one call, a part remains a single mapping, which can be moved again.
  while (done < runs.count && moveRun(runs.from + done * runs.fromBytes, runs.fromBytes,
                                      runs.to + done * runs.toBytes, runs.toBytes))
    ++done;
  if (done == runs.count)
    return;
  refill(runs.to + done * runs.toBytes, runs.toBytes);
  for (size_t run = done; run < runs.count; ++run)
    std::memcpy(runs.to + run * runs.toBytes, runs.from + run * runs.fromBytes, runs.fromBytes);
  unmap(runs.from + done * runs.fromBytes, (runs.count - done) * runs.fromBytes);
}

void forgetMovedPages(std::byte* data, size_t bytes) {
  // The fences are still mapped; memory between them has another owner.
  if (fence() == 0)
    return;
  assert(roundedUp(bytes) == bytes);
  for (std::byte* left : {data - fence(), data + bytes}) {
    __asan_unpoison_memory_region(left, fence());
    unmap(left, fence());
  }
}

} // namespace kvopt::runtime
