// The recommendation for a model: the last line of inspect.
#pragma once

#include "driver/forms/without_caches.h"
#include "driver/recover.h"

namespace kvopt::driver {

/// The recommendation for the model that was recovered from `source`: the form that a rewrite
/// without `--to` writes.
Recommendation recommend(const ModelSource& source, const RecoveredModel& recovered,
                         const Toolkit& toolkit);

} // namespace kvopt::driver
