// The reserve of a thread's call.
#include "api/memory_reserve.h"

#include <cstdlib>
#include <new>

namespace kvopt::api {
namespace {

thread_local void* reserved = nullptr;
thread_local bool isGivenBack = false;

} // namespace

MemoryReserve::MemoryReserve() {
  reserved = std::malloc(size);
  isGivenBack = false;
  if (!reserved)
    throw std::bad_alloc();
}

MemoryReserve::~MemoryReserve() {
  std::free(reserved);
  reserved = nullptr;
  isGivenBack = false;
}

bool MemoryReserve::release(size_t bytes) noexcept {
  if (!reserved || bytes > size)
    return false;
  std::free(reserved);
  reserved = nullptr;
  isGivenBack = true;
  return true;
}

void MemoryReserve::check() {
  if (isGivenBack)
    throw std::bad_alloc();
}

} // namespace kvopt::api
