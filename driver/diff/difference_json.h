// The difference of two models as JSON.
#pragma once

#include "driver/diff/model_difference.h"
#include "support/json_fwd.h"

namespace kvopt::driver {

/// The document kvopt/diff/1 for the models at `pathBefore` and `pathAfter`.
OrderedJson differenceJson(const std::string& pathBefore, const std::string& pathAfter,
                           const ModelDifference& difference);

} // namespace kvopt::driver
