// Output of kvopt rewrite as JSON.
#pragma once

#include "driver/rewrite/files.h"
#include "driver/rewrite/rewrite.h"
#include "support/json_fwd.h"

namespace kvopt::driver {

/// The document kvopt/rewrite/1 for a rewritten model; `output` is empty if nothing is written.
OrderedJson rewriteJson(const std::string& output, const std::string& target,
                        const RewrittenModel& rewritten, const WeightFiles& weights);
/// The document for a model that already has the target's form; it is written as it is.
OrderedJson unchangedJson(const std::string& output, const std::string& target,
                          const UnchangedModel& unchanged, const WeightFiles& weights);
/// The document for a model that the target refuses.
OrderedJson refusedJson(const std::string& target, const RefusedModel& refused);

} // namespace kvopt::driver
