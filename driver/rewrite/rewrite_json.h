// What kvopt rewrite says as JSON.
#pragma once

#include "driver/rewrite/files.h"
#include "driver/rewrite/rewrite.h"
#include "support/json.h"

namespace kvopt::driver {

/// kvopt/rewrite/1; `output` is empty where nothing is written.
OrderedJson rewriteJson(const std::string& output, const std::string& target,
                        const RewrittenModel& rewritten, const WeightFiles& weights);
/// The same of a model that has the target's form already: it is written as it is.
OrderedJson unchangedJson(const std::string& output, const std::string& target,
                          const UnchangedModel& unchanged, const WeightFiles& weights);
/// The same of a model that is not rewritten.
OrderedJson refusedJson(const std::string& target, const RefusedModel& refused);

} // namespace kvopt::driver
