// Parts of caches that hold several in one.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/memory/buffer.h"

#include <optional>

namespace kvopt::runtime {

/// Of a tensor laid out as the cache that `cache` is a part of, that part, laid out as
/// CacheState::exportedRows, with all rows of the sequence. nullopt where the tensor has other
/// axes, or ends before the part does.
std::optional<TensorView> viewOfPart(const TensorView& whole, const ir::ManifestCache& cache);

/// Whether `cache` is a part of `whole`, a cache of the model before it was rewritten.
inline bool isPartOf(const ir::ManifestCache& cache, const ir::ManifestCache& whole) {
  return cache.part && !whole.part && cache.part->past == whole.past;
}

} // namespace kvopt::runtime
