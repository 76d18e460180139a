// Runs of a model before and after its rewrite.
#pragma once

#include "driver/rewrite/comparison.h"

namespace kvopt::driver {

/// Runner::compare.
llvm::Error compareByRuns(const RewrittenPair& pair, const RewriteRequest& request,
                          const Toolkit& toolkit, RewriteComparison& result);

} // namespace kvopt::driver
