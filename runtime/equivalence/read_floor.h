// Number of bytes that a decode step must read, and the time to read them (bandwidth bound).
#pragma once

#include "runtime/session/session.h"
#include "runtime/threads/thread_pool.h"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace kvopt::runtime {

/// Pieces of memory that do not overlap.
struct MemorySpans {
  std::vector<std::span<const std::byte>> pieces;
  std::vector<std::shared_ptr<const void>> owners; ///< owners of pieces that are copies
  int64_t bytes() const;
};

/// Constants that every step reads completely: operands of nodes that the outputs depend on, except
/// tables from which a step reads one row per token (read only as the first operand of a Gather or
/// GatherBlockQuantized along the first axis). For an If, the branch that reads least. Constants
/// that share memory count once. `constants` keeps the memory alive.
struct WeightSpans {
  MemorySpans spans;
  std::vector<ir::TensorRef> constants;
};
/// Fails if contents are unavailable.
llvm::Expected<WeightSpans> weightSpans(const ir::Graph& graph);

/// Valid rows of a session's caches in memory: only the latest rows for a window, and rows up to
/// the session's length for a cache of static capacity. Valid until the next step. Rows in blocks
/// are copied.
llvm::Expected<MemorySpans> cacheSpans(const Session& session);

/// Reads everything once, divided into pieces of equal size for the pool's threads. Returns
/// seconds.
double readSeconds(llvm::ArrayRef<const MemorySpans*> spans, ThreadPool& pool);

} // namespace kvopt::runtime
