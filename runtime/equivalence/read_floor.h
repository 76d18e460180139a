// The bytes a decode step cannot avoid to read, and how long reading them takes.
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
  std::vector<std::shared_ptr<const void>> owners; ///< of pieces that are copies
  int64_t bytes() const;
};

/// The constants that every step reads in full: operands of nodes that the outputs depend on, but
/// for tables of which a step looks up a row a token (only read as the first operand of a Gather or
/// GatherBlockQuantized along the first axis). Of the branches of an If it is the one that reads
/// least. Constants that share memory count once. `constants` keeps the memory alive.
struct WeightSpans {
  MemorySpans spans;
  std::vector<ir::TensorRef> constants;
};
/// Fails where contents cannot be had.
llvm::Expected<WeightSpans> weightSpans(const ir::Graph& graph);

/// The valid rows of a session's caches, as they lie in memory: of a window its latest rows only,
/// of a cache of static capacity the rows up to the session's length. Valid until the next step.
/// Rows that are in blocks are copied.
llvm::Expected<MemorySpans> cacheSpans(const Session& session);

/// Reads all of it once, spread over the pool's threads in pieces of equal size. Seconds.
double readSeconds(llvm::ArrayRef<const MemorySpans*> spans, ThreadPool& pool);

} // namespace kvopt::runtime
