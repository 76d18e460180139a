// BufferPool: memory for tensors whose size or lifetime is not known before a run, used again.
#pragma once

#include "runtime/memory/buffer.h"

namespace kvopt::runtime {

/// Hands out memory in classes of sizes and keeps what comes back, so that steps that repeat each
/// other, or grow by little, allocate nothing: neither tensor memory nor anything on the heap.
/// Memory may be given back on any thread, and after the pool is gone.
class BufferPool {
public:
  explicit BufferPool(std::shared_ptr<Allocator> allocator);
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  /// Frees what is not in use.
  ~BufferPool();

  struct Memory {
    std::shared_ptr<const void> owner; ///< gives the memory back to the pool
    std::byte* data = nullptr;         ///< aligned to bufferAlignment; never null
    bool isFresh = false;              ///< came from the allocator just now
    size_t bytes = 0;                  ///< what there is, at least what was asked for
  };
  /// Uninitialized memory. Where the allocator has none, free memory of other sizes is given up
  /// for it; fails when that does not help.
  llvm::Expected<Memory> take(size_t bytes);

  /// Bytes handed out now, and the most since `restartPeak`.
  size_t bytesInUse() const;
  size_t peakBytesInUse() const;
  void restartPeak();
  /// Bytes kept for later.
  size_t freeBytes() const;

  /// Ends a round: what was free all through the last `idleRounds` rounds goes back to the
  /// allocator.
  void endRound();
  static constexpr uint64_t idleRounds = 8;
  void releaseFree();

  /// What `bytes` are rounded up to: less than twice as much, a quarter more at most from 1 MiB on,
  /// and at least 1 KiB; 0 stays 0. A tensor that grows from step to step changes its class a
  /// number of times that is the logarithm of its size.
  static size_t classBytes(size_t bytes);

private:
  class Core;
  std::shared_ptr<Core> core;
};

} // namespace kvopt::runtime
