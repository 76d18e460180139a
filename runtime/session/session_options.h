// SessionOptions: how a session stores its caches and runs its model.
#pragma once

#include "runtime/memory/buffer.h"
#include "runtime/session/pyramid.h"
#include "runtime/threads/thread_pool.h"

#include <cstdint>
#include <memory>

namespace kvopt::runtime {

struct SessionOptions {
  enum class Mode {
    AsManifest, ///< A shared buffer has a fixed capacity; exceeding it is an error.
    Stateful,   ///< A shared buffer grows geometrically as far as the manifest allows.
  };
  Mode mode = Mode::AsManifest;
  /// Capacity in tokens of a shared buffer, or of a static cache with a symbolic extent; 0 means
  /// the manifest's capacity or, in Stateful mode, a small one. In mode AsManifest, other caches
  /// take no more tokens than that, either.
  int64_t capacity = 0;
  int64_t batch = 1;
  /// As in ExecutorOptions. A session without a pool creates one, which its forks share.
  unsigned threads = 0;
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<Allocator> allocator;
  bool timeOperators = false;
  /// As in ExecutorOptions; forks share the constants of their session.
  int64_t foldedConstantsLimit = -1;
  /// For a model with caches in blocks: the maximum number of blocks held by the session and its
  /// forks; 0 means unlimited.
  int64_t blockLimit = 0;
  /// Fill new shared buffers and blocks with NaN instead of zeros, and blocks of fixed extents,
  /// which are read completely, with large numbers, to detect reads of unwritten rows.
  bool poison = false;
  /// Source of the variants or pieces of a model; null: the files that the manifest names, in the
  /// model's folder. Forks share it.
  std::shared_ptr<ir::VariantSource> variants;
};

} // namespace kvopt::runtime
