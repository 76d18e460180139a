// Models that cannot start from empty caches.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "runtime/equivalence/planned_steps.h"

namespace kvopt::driver {

/// Number of tokens that a model must process before its results are defined. A model that keeps
/// the last rows in caches of fixed extents may have been exported with full caches; its first
/// steps then read rows that no token wrote. Runs the first step from two different contents of
/// such rows. If the results differ, the number is that of the rows; otherwise, and for other
/// models, it is 0.
int64_t tokensBeforeStart(const ir::Model& model, const ir::Manifest& manifest,
                          const runtime::EquivalencePlan& plan, unsigned threads,
                          const Toolkit& toolkit);

} // namespace kvopt::driver
