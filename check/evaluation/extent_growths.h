// Growths of extents: how the shapes of results depend on sizes.
#pragma once

#include "check/arithmetic/call.h"

namespace kvopt::check {

/// The growths of a result's extents; empty if they are all fixed. Those that do not follow from
/// the operator's definition are not traced.
ExtentIds extentGrowths(Call& call, unsigned index, const Tensor& result);

} // namespace kvopt::check
