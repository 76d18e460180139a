// Memory in whole pages: zeros that use no memory until they are written, and that can be moved to
// other addresses without a copy.
#pragma once

#include <cstddef>

namespace kvopt::runtime {

/// Size of a page in bytes; a power of two.
size_t pageBytes();

/// `bytes` > 0 zeros, aligned to a page; null if memory is short. The kernel allocates a page when
/// it is first written.
std::byte* mapPages(size_t bytes);
void unmapPages(std::byte* data, size_t bytes);

/// Size in bytes of the pages that `preferLargePages` enables.
inline constexpr size_t largePageBytes = size_t{2} << 20;
/// Allows the first write to allocate a large page, which is cheaper than the small pages that it
/// replaces. For mappings that will be written almost everywhere.
void preferLargePages(std::byte* data, size_t bytes);

/// Equal parts of one mapping that become the beginnings of equal, longer parts of another: rows of
/// heads when a cache grows.
struct PageRuns {
  std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t count = 0;
  size_t fromBytes = 0; ///< size of one part; the mapping has `count` parts
  size_t toBytes = 0;

  /// Whether every part starts and ends at a page boundary on both sides.
  bool isPaged() const;
};

/// Moves the pages. Requires `isPaged`, and zeros at `to`. After the move, zeros follow each part.
/// The memory at `from` is unmapped, and other threads may map it at once, so `forgetMovedPages`
/// must follow. Cannot fail: pages that the kernel refuses to move are copied.
void movePages(const PageRuns& runs);
/// Replaces `unmapPages` for a mapping whose pages were moved.
void forgetMovedPages(std::byte* data, size_t bytes);

} // namespace kvopt::runtime
