// Reductions along the last axis.
#pragma once

#include "ir/graph.h"

namespace kvopt::analysis {

/// Whether a reduction is over the last axis alone and keeps it with extent one.
bool reducesLastAxis(const ir::Node& reduction);

} // namespace kvopt::analysis
