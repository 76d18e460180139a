// Values that are one buffer under several shapes, as operators' definitions say
// (Alias::Kind::View).
#pragma once

#include "ir/value.h"

#include "llvm/ADT/SmallVector.h"

namespace kvopt::ir {

/// The value that the value is a view of; the value itself if it is none. Follows a bounded number
/// of views.
const Value& bufferOf(const Value& value);

/// The values that are `value` itself under another shape, `value` first.
llvm::SmallVector<const Value*, 4> viewsOf(const Value& value);

} // namespace kvopt::ir
