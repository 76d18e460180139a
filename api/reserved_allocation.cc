// Allocation functions of the shared library: what it and the libraries inside it call in place of
// those of the C and C++ libraries. The linker redirects the calls (--wrap), so that the rest of
// the process keeps its own functions. Each calls the function that it replaces. Where that one
// fails, it gives back the reserve of the thread's call and tries once more.
//
// Memory comes from the process's own functions, so that any code may free it.
#include "api/memory_reserve.h"

#include <cerrno>
#include <new>

using kvopt::api::MemoryReserve;

namespace {

/// Result of `allocate`, or of a second try. Null after a failure.
template <class Allocate> void* allocated(size_t bytes, const Allocate& allocate) {
  void* memory = allocate();
  if (memory || bytes == 0 || !MemoryReserve::release(bytes))
    return memory;
  return allocate();
}

/// The same for functions that throw.
template <class Allocate> void* allocatedOrThrown(size_t bytes, const Allocate& allocate) {
  try {
    return allocate();
  } catch (const std::bad_alloc&) {
    if (!MemoryReserve::release(bytes))
      throw;
  }
  return allocate();
}

} // namespace

extern "C" {

void* __real_malloc(size_t bytes);
void* __real_calloc(size_t count, size_t bytes);
void* __real_realloc(void* memory, size_t bytes);
void* __real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void** memory, size_t alignment, size_t bytes);
void* __real__Znwm(size_t bytes);
void* __real__Znam(size_t bytes);
void* __real__ZnwmSt11align_val_t(size_t bytes, std::align_val_t alignment);
void* __real__ZnamSt11align_val_t(size_t bytes, std::align_val_t alignment);
void* __real__ZnwmRKSt9nothrow_t(size_t bytes, const std::nothrow_t& tag) noexcept;
void* __real__ZnamRKSt9nothrow_t(size_t bytes, const std::nothrow_t& tag) noexcept;
void* __real__ZnwmSt11align_val_tRKSt9nothrow_t(size_t bytes, std::align_val_t alignment,
                                                const std::nothrow_t& tag) noexcept;
void* __real__ZnamSt11align_val_tRKSt9nothrow_t(size_t bytes, std::align_val_t alignment,
                                                const std::nothrow_t& tag) noexcept;

void* __wrap_malloc(size_t bytes) {
  return allocated(bytes, [=] { return __real_malloc(bytes); });
}

void* __wrap_calloc(size_t count, size_t bytes) {
  size_t total = 0;
  if (__builtin_mul_overflow(count, bytes, &total))
    return __real_calloc(count, bytes);
  return allocated(total, [=] { return __real_calloc(count, bytes); });
}

void* __wrap_realloc(void* memory, size_t bytes) {
  return allocated(bytes, [=] { return __real_realloc(memory, bytes); });
}

void* __wrap_aligned_alloc(size_t alignment, size_t bytes) {
  return allocated(bytes, [=] { return __real_aligned_alloc(alignment, bytes); });
}

int __wrap_posix_memalign(void** memory, size_t alignment, size_t bytes) {
  const int error = __real_posix_memalign(memory, alignment, bytes);
  if (error != ENOMEM || !MemoryReserve::release(bytes))
    return error;
  return __real_posix_memalign(memory, alignment, bytes);
}

void* __wrap__Znwm(size_t bytes) {
  return allocatedOrThrown(bytes, [=] { return __real__Znwm(bytes); });
}

void* __wrap__Znam(size_t bytes) {
  return allocatedOrThrown(bytes, [=] { return __real__Znam(bytes); });
}

void* __wrap__ZnwmSt11align_val_t(size_t bytes, std::align_val_t alignment) {
  return allocatedOrThrown(bytes, [=] { return __real__ZnwmSt11align_val_t(bytes, alignment); });
}

void* __wrap__ZnamSt11align_val_t(size_t bytes, std::align_val_t alignment) {
  return allocatedOrThrown(bytes, [=] { return __real__ZnamSt11align_val_t(bytes, alignment); });
}

void* __wrap__ZnwmRKSt9nothrow_t(size_t bytes, const std::nothrow_t& tag) noexcept {
  return allocated(bytes, [&] { return __real__ZnwmRKSt9nothrow_t(bytes, tag); });
}

void* __wrap__ZnamRKSt9nothrow_t(size_t bytes, const std::nothrow_t& tag) noexcept {
  return allocated(bytes, [&] { return __real__ZnamRKSt9nothrow_t(bytes, tag); });
}

void* __wrap__ZnwmSt11align_val_tRKSt9nothrow_t(size_t bytes, std::align_val_t alignment,
                                                const std::nothrow_t& tag) noexcept {
  return allocated(
      bytes, [&] { return __real__ZnwmSt11align_val_tRKSt9nothrow_t(bytes, alignment, tag); });
}

void* __wrap__ZnamSt11align_val_tRKSt9nothrow_t(size_t bytes, std::align_val_t alignment,
                                                const std::nothrow_t& tag) noexcept {
  return allocated(
      bytes, [&] { return __real__ZnamSt11align_val_tRKSt9nothrow_t(bytes, alignment, tag); });
}
}
