// BufferPool: reused memory for tensors whose size or lifetime is unknown before a run.
#pragma once

#include "runtime/memory/buffer.h"

namespace kvopt::runtime {

/// Provides memory in size classes and keeps returned memory, so that similar or slowly growing
/// steps allocate nothing: neither tensor memory nor heap memory. Memory may be returned on any
/// thread, and after the pool was destroyed.
class BufferPool {
public:
  explicit BufferPool(std::shared_ptr<Allocator> allocator);
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  /// Frees all memory that is not in use.
  ~BufferPool();

  struct Memory {
    std::shared_ptr<const void> owner; ///< returns the memory to the pool
    std::byte* data = nullptr;         ///< aligned to bufferAlignment; never null
    bool isFresh = false;              ///< whether it was just allocated
    size_t bytes = 0;                  ///< available size; at least the requested one
  };
  /// Uninitialized memory. If the allocator has none, frees memory of other sizes; fails if this
  /// does not help.
  llvm::Expected<Memory> take(size_t bytes);

  /// Number of bytes in use, and its maximum since `restartPeak`.
  size_t bytesInUse() const;
  size_t peakBytesInUse() const;
  void restartPeak();
  /// Number of free bytes kept for later.
  size_t freeBytes() const;

  /// Ends a round: memory that was free during the last `idleRounds` rounds is returned to the
  /// allocator.
  void endRound();
  static constexpr uint64_t idleRounds = 8;
  void releaseFree();

  /// Size of the class for `bytes`: less than twice as large, at most a quarter larger from 1 MiB
  /// on, and at least 1 KiB; 0 stays 0. The number of class changes of a growing tensor is
  /// logarithmic in its size.
  static size_t classBytes(size_t bytes);

private:
  class Core;
  std::shared_ptr<Core> core;
};

} // namespace kvopt::runtime
