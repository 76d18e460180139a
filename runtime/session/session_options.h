// SessionOptions: how a session holds its caches and runs its model.
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
  /// Tokens a shared buffer, or a static cache whose extent is open, has room for; 0 takes the
  /// manifest's capacity or, in Stateful mode, a small one.
  int64_t capacity = 0;
  int64_t batch = 1;
  /// As in ExecutorOptions. A session without a pool makes one, which its forks use too.
  unsigned threads = 0;
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<Allocator> allocator;
  bool timeOperators = false;
  /// As in ExecutorOptions; forks use the constants of the session they come from.
  int64_t foldedConstantsLimit = -1;
  /// For a model with caches in blocks: the maximum number of blocks held by the session and its
  /// forks; 0 means unlimited.
  int64_t blockLimit = 0;
  /// Fill fresh shared buffers and blocks with NaN instead of zeros, and blocks of fixed extents,
  /// which are read whole, with large numbers: nothing may depend on unwritten rows.
  bool poison = false;
  /// Where the variants or pieces of a model come from; null: the files that the manifest names, in
  /// the model's folder. Shared with forks.
  std::shared_ptr<VariantSource> variants;
};

} // namespace kvopt::runtime
