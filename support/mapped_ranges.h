// Map from addresses to mapped files, for the handler of SIGBUS.
//
// Like support/termination.h, this is process-wide state that a signal handler reads.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace kvopt {

/// Registers mapped bytes in a table of fixed size during its lifetime. Lock-free. When the table
/// is full, the bytes are not registered.
class MappedRange {
public:
  /// `path` must outlive this object.
  MappedRange(std::span<const std::byte> bytes, const std::string& path);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

private:
  int slot = -1;
};

/// Path of the mapped file that contains `address`; null for any other address.
/// Async-signal-safe.
const char* mappedFileAt(const void* address);

} // namespace kvopt
