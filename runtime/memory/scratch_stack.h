// ScratchStack: working memory of operators, kept from one to the next.
#pragma once

#include "runtime/memory/buffer.h"

#include <vector>

namespace kvopt::runtime {

/// Memory that is taken while an operator runs and given back, last taken first, when it is done.
/// A request that is no larger than the ones at its depth before allocates nothing.
class ScratchStack {
public:
  explicit ScratchStack(std::shared_ptr<Allocator> allocator) : source(std::move(allocator)) {}

  /// What was in use at some moment.
  struct Mark {
    size_t blocks = 0;
    size_t bytes = 0;
  };
  Mark mark() const { return inUse; }
  /// Gives back all that was taken since.
  void returnTo(Mark mark) { inUse = mark; }

  struct Memory {
    std::span<std::byte> bytes;
    size_t allocated = 0; ///< bytes that came from the allocator just now
  };
  /// Uninitialized, aligned to bufferAlignment.
  llvm::Expected<Memory> take(size_t bytes);

  /// The most bytes in use since `restartPeak`.
  size_t peakBytes() const { return peak; }
  void restartPeak() { peak = inUse.bytes; }
  /// Bytes kept for later.
  size_t reservedBytes() const;
  /// Gives what is not in use to the allocator.
  void releaseFree() { blocks.resize(std::min(blocks.size(), inUse.blocks)); }

private:
  std::shared_ptr<Allocator> source;
  std::vector<std::shared_ptr<Buffer>> blocks;
  Mark inUse;
  size_t peak = 0;
};

} // namespace kvopt::runtime
