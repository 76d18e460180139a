// Whether two values hold the same elements, because they are moved alike from one value.
#pragma once

#include "ir/value.h"

namespace kvopt::analysis {

/// Whether both values provably have the same shape and elements: they are one value, or come from
/// one value through the same movements. Consecutive Transposes count as one.
bool areEqual(const ir::Value& first, const ir::Value& second);

} // namespace kvopt::analysis
