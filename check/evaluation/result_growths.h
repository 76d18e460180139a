// Growths of results: what a node's operands say of how its results depend on sizes.
#pragma once

#include "check/arithmetic/call.h"

namespace kvopt::check {

/// Writes the growths of the extents of all results, and those of integers and known numbers that
/// no rule traces. By default nothing is traced: notes uses of numbers that are not.
void traceResults(Call& call, Results& results);

} // namespace kvopt::check
