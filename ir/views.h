// Values that share one buffer with different shapes, according to the operators' definitions
// (Alias::Kind::View).
#pragma once

#include "ir/value.h"

#include "llvm/ADT/SmallVector.h"

namespace kvopt::ir {

/// The value that `value` is a view of; `value` itself if it is not a view. Follows a limited
/// number of views.
/// number of views.
const Value& bufferOf(const Value& value);

/// `value` and all views of it, `value` first.
llvm::SmallVector<const Value*, 4> viewsOf(const Value& value);

} // namespace kvopt::ir
