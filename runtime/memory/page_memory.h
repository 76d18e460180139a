// Memory in whole pages: zeros that take no room until they are written, and that can be moved to
// other addresses without a copy.
#pragma once

#include <cstddef>

namespace kvopt::runtime {

/// Bytes of a page; a power of two.
size_t pageBytes();

/// `bytes` > 0 zeros at a multiple of a page; null when there are none. The kernel finds a page for
/// them when something is first written there.
std::byte* mapPages(size_t bytes);
void unmapPages(std::byte* data, size_t bytes);

/// Bytes of the pages that the kernel finds at once where `preferLargePages` allows it.
inline constexpr size_t largePageBytes = size_t{2} << 20;
/// From now on, the first byte that is written may bring a large page along, which costs less than
/// the small pages that it replaces. For mappings that will be written almost everywhere.
void preferLargePages(std::byte* data, size_t bytes);

/// The equal parts of one mapping that become the beginnings of the equal, longer parts of another:
/// rows of heads, when a cache grows.
struct PageRuns {
  std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t count = 0;
  size_t fromBytes = 0; ///< of one part; the mapping has `count` of them
  size_t toBytes = 0;

  /// Whether every part starts and ends with a page, on both sides.
  bool isPaged() const;
};

/// Requires `isPaged`, and zeros at `to`. What follows a part at its new place is zeros. Nothing is
/// left at `from`, where other threads may map memory at once: to be followed by
/// `forgetMovedPages`. Cannot fail: what the kernel refuses to move is copied.
void movePages(const PageRuns& runs);
/// Instead of `unmapPages`, for a mapping whose pages have been moved.
void forgetMovedPages(std::byte* data, size_t bytes);

} // namespace kvopt::runtime
