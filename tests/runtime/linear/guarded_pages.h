// Memory between pages that may not be touched: a read or write outside of it ends the test.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstring>
#include <span>
#include <sys/mman.h>
#include <unistd.h>

namespace kvopt {

class GuardedPages {
public:
  /// Room for `bytes` bytes.
  explicit GuardedPages(size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size = (bytes + page - 1) / page * page + page;
    guard = page;
    void* memory = mmap(nullptr, size + 2 * guard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(memory != MAP_FAILED);
    base = static_cast<std::byte*>(memory);
    [[maybe_unused]] const int failed = mprotect(base + guard, size, PROT_READ | PROT_WRITE);
    assert(failed == 0);
  }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;
  ~GuardedPages() { munmap(base, size + 2 * guard); }

  /// A copy of `values` that ends where the guard begins or, if `first`, begins where it ends.
  template <class T> T* place(std::span<const T> values, bool first) {
    assert(values.size_bytes() <= size);
    std::byte* at = first ? base + guard : base + guard + size - values.size_bytes();
    if (!values.empty())
      std::memcpy(at, values.data(), values.size_bytes());
    return reinterpret_cast<T*>(at);
  }

private:
  size_t size = 0;
  size_t guard = 0;
  std::byte* base = nullptr;
};

} // namespace kvopt
