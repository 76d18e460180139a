// Parts of caches that hold several caches in one.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/memory/buffer.h"

#include <optional>

namespace kvopt::runtime {

/// The part `cache` of `whole`, a tensor with the layout of the cache that contains the part. The
/// result has the layout of CacheState::exportedRows and all rows of the sequence. nullopt if the
/// tensor has other axes, or ends before the part.
std::optional<TensorView> viewOfPart(const TensorView& whole, const ir::ManifestCache& cache);

/// Whether `cache` is a part of `whole`, a cache of the model before the rewrite.
inline bool isPartOf(const ir::ManifestCache& cache, const ir::ManifestCache& whole) {
  return cache.part && !whole.part && cache.part->past == whole.past;
}

} // namespace kvopt::runtime
