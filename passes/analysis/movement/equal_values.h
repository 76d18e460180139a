// Whether two values are equal because the same movements produce them from one value.
#pragma once

#include "ir/value.h"

namespace kvopt::analysis {

/// Whether both values provably have the same shape and elements: they are one value, or the same
/// movements produce both from one value. Consecutive Transposes count as one.
bool areEqual(const ir::Value& first, const ir::Value& second);

} // namespace kvopt::analysis
