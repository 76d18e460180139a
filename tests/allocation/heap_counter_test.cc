// The heap's functions, counting, in front of those of the C library.
#include "tests/allocation/heap_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>

namespace {
std::atomic<uint64_t> requests{0};
} // namespace

// The sanitizers have a heap of their own.
#if KVOPT_COUNTS_HEAP
extern "C" {
void* __libc_malloc(size_t);           // NOLINT
void* __libc_calloc(size_t, size_t);   // NOLINT
void* __libc_realloc(void*, size_t);   // NOLINT
void* __libc_memalign(size_t, size_t); // NOLINT

void* malloc(size_t bytes) {
  ++requests;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++requests;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  ++requests;
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  ++requests;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  ++requests;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  ++requests;
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
}
#endif

namespace kvopt {

bool countsHeap() { return KVOPT_COUNTS_HEAP != 0; }

uint64_t heapRequests() { return requests; }

namespace {

TEST(HeapCounter, SeesEveryWayToTheHeap) {
  if (!countsHeap())
    GTEST_SKIP() << "the sanitizers have a heap of their own";
  uint64_t before = heapRequests();
  auto number = std::make_unique<int>(1);
  EXPECT_EQ(heapRequests(), before + 1);
  struct alignas(128) Wide {
    char bytes[128];
  };
  auto wide = std::make_unique<Wide>();
  EXPECT_EQ(heapRequests(), before + 2);
  std::unique_ptr<void, void (*)(void*)> plain(std::malloc(10), std::free);
  EXPECT_EQ(heapRequests(), before + 3);
  std::shared_ptr<int> copied = std::make_shared<int>(*number);
  EXPECT_EQ(heapRequests(), before + 4);
}

} // namespace
} // namespace kvopt
