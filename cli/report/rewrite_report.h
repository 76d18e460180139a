// What kvopt rewrite says as JSON.
#pragma once

#include "driver/rewrite/files.h"
#include "driver/rewrite/rewrite.h"

namespace kvopt::cli {

/// kvopt/rewrite/1; `output` is empty where nothing is written.
OrderedJson rewriteJson(const std::string& output, const std::string& target,
                        const driver::RewrittenModel& rewritten,
                        const driver::WeightFiles& weights);
/// The same of a model that has the target's form already: it is written as it is.
OrderedJson unchangedJson(const std::string& output, const std::string& target,
                          const driver::UnchangedModel& unchanged,
                          const driver::WeightFiles& weights);
/// The same of a model that is not rewritten.
OrderedJson refusedJson(const std::string& target, const driver::RefusedModel& refused);

} // namespace kvopt::cli
