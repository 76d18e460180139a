// Which file is mapped where, for the handler of SIGBUS.
//
// Like support/termination.h, this is process-wide state that a signal handler reads.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace kvopt {

/// Enters mapped bytes into a table of fixed size as long as it lives. Lock-free. When the table is
/// full, the bytes are not entered.
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

/// Returns the path of the mapped file that holds an address; null for any other address.
/// Async-signal-safe.
const char* mappedFileAt(const void* address);

} // namespace kvopt
