// ScratchStack: working memory of operators, kept between operators.
#pragma once

#include "runtime/memory/buffer.h"

#include <vector>

namespace kvopt::runtime {

/// Memory that is taken while an operator runs and returned in reverse order when it ends. A
/// request that does not exceed earlier ones at the same depth allocates nothing.
class ScratchStack {
public:
  explicit ScratchStack(std::shared_ptr<Allocator> allocator) : source(std::move(allocator)) {}

  /// Memory that was in use at some time.
  struct Mark {
    size_t blocks = 0;
    size_t bytes = 0;
  };
  Mark mark() const { return inUse; }
  /// Returns all memory that was taken since.
  void returnTo(Mark mark) { inUse = mark; }

  struct Memory {
    std::span<std::byte> bytes;
    size_t allocated = 0; ///< number of newly allocated bytes
  };
  /// Uninitialized memory, aligned to bufferAlignment.
  llvm::Expected<Memory> take(size_t bytes);

  /// Maximum number of bytes in use since `restartPeak`.
  size_t peakBytes() const { return peak; }
  void restartPeak() { peak = inUse.bytes; }
  /// Number of bytes kept for later.
  size_t reservedBytes() const;
  /// Returns unused memory to the allocator.
  void releaseFree() { blocks.resize(std::min(blocks.size(), inUse.blocks)); }

private:
  std::shared_ptr<Allocator> source;
  std::vector<std::shared_ptr<Buffer>> blocks;
  Mark inUse;
  size_t peak = 0;
};

} // namespace kvopt::runtime
