// The difference of two models as JSON and as text.
#pragma once

#include "driver/diff/model_difference.h"
#include "support/json.h"
#include "support/safe_text.h"

namespace kvopt::cli {

/// kvopt/diff/1.
OrderedJson differenceJson(const std::string& pathBefore, const std::string& pathAfter,
                           const driver::ModelDifference& difference);
/// The same for people.
SafeText differenceText(const std::string& pathBefore, const std::string& pathAfter,
                        const driver::ModelDifference& difference);

} // namespace kvopt::cli
