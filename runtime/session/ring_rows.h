// The rows of a cache that is a ring, in the order of their tokens.
#pragma once

#include "runtime/session/session.h"

namespace kvopt::runtime {

/// Whether cache `index` is one buffer of fixed extents in which the row of position p lies in slot
/// p mod C.
bool isRing(const Session& session, size_t index);

/// How many tokens' rows a cache holds: in a ring at most one for each slot.
int64_t heldRows(const Session& session, size_t index);

/// A copy of the last `count` of them, laid out as Session::exportedCacheView; `count` is at most
/// heldRows.
llvm::Expected<Tensor> lastRowsInOrder(const Session& session, size_t index, int64_t count);

} // namespace kvopt::runtime
