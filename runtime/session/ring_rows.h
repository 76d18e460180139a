// Rows of a ring cache in the order of their tokens.
#pragma once

#include "runtime/session/cache_state.h"

namespace kvopt::runtime {

/// Whether cache `index` is a buffer of fixed extents in which the row of position p is in slot p
/// mod C.
inline bool isRing(const CacheState& caches, size_t index) {
  return caches.set().geometry(index).isFixedRing();
}

/// Number of tokens whose rows a cache holds: in a ring at most one for each slot.
int64_t heldRows(const CacheState& caches, size_t index);

/// Number of slots: all slots of a ring; for other caches, the number of rows.
int64_t slotCount(const CacheState& caches, size_t index);

/// A copy of the last `count` rows with the layout of CacheState::exportedRows; `count` is at most
/// heldRows.
llvm::Expected<Tensor> lastRowsInOrder(const CacheState& caches, size_t index, int64_t count);

} // namespace kvopt::runtime
