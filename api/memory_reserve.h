// A reserve of memory for calls that cannot survive an exception everywhere.
#pragma once

#include <cstddef>

namespace kvopt::api {

/// Memory that a call holds until an allocation of its thread fails. The shared library's
/// allocation functions (api/reserved_allocation.cc) then give it back to the heap and try again,
/// so that containers in the middle of a change can complete it. The call stops at its next
/// checkpoint with std::bad_alloc. The reserve costs address space, but its pages are never
/// touched.
class MemoryReserve {
public:
  /// Size in bytes. Larger than any table of a model with the most nodes that --max-nodes allows by
  /// default.
  static constexpr size_t size = size_t{32} << 20;

  /// Throws std::bad_alloc if there is not enough memory for the reserve.
  MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;
  ~MemoryReserve();

  /// Gives the reserve of this thread's call back to the heap after an allocation of `bytes` bytes
  /// failed. False if a second try cannot help: there is no reserve, it was given back before, or
  /// it is smaller than `bytes`.
  static bool release(size_t bytes) noexcept;

  /// Throws std::bad_alloc if the reserve of this thread's call was given back. Only for places
  /// where an exception leaves no container in the middle of a change.
  static void check();
};

} // namespace kvopt::api
