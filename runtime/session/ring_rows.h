// The rows of a cache that is a ring, in the order of their tokens.
#pragma once

#include "runtime/session/cache_state.h"

namespace kvopt::runtime {

/// Whether cache `index` is one buffer of fixed extents in which the row of position p is in slot
/// p mod C.
inline bool isRing(const CacheState& caches, size_t index) {
  return caches.set().geometry(index).isFixedRing();
}

/// How many tokens' rows a cache holds: in a ring at most one for each slot.
int64_t heldRows(const CacheState& caches, size_t index);

/// How many rows it has: those that it holds, but for a ring all slots.
int64_t slotCount(const CacheState& caches, size_t index);

/// A copy of the last `count` of them, laid out as CacheState::exportedRows; `count` is at most
/// heldRows.
llvm::Expected<Tensor> lastRowsInOrder(const CacheState& caches, size_t index, int64_t count);

} // namespace kvopt::runtime
