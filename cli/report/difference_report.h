// The difference of two models as text.
#pragma once

#include "driver/diff/model_difference.h"
#include "support/safe_text.h"

namespace kvopt::cli {

/// The changes between two models as text for people.
SafeText differenceText(const std::string& pathBefore, const std::string& pathAfter,
                        const driver::ModelDifference& difference);

} // namespace kvopt::cli
