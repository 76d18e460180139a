// Models that cannot start from empty caches.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "runtime/equivalence/planned_steps.h"

namespace kvopt::driver {

/// How many tokens a model must have taken before what it computes is defined. A model that keeps
/// the last rows in caches of fixed extents may have been exported with these full: its first steps
/// then read rows that no token wrote. Steps the model from two contents of such rows, and gives
/// their number where the results differ; 0 where they do not, and for other models.
int64_t tokensBeforeStart(const ir::Model& model, const ir::Manifest& manifest,
                          const runtime::EquivalencePlan& plan, unsigned threads,
                          const Toolkit& toolkit);

} // namespace kvopt::driver
