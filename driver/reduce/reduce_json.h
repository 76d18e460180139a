// The result of a reduction as JSON.
#pragma once

#include "driver/reduce/reduce.h"
#include "support/json_fwd.h"

namespace kvopt::driver {

/// The document kvopt/reduce/1.
OrderedJson reduceJson(const ReduceRequest& request, const ReducedModel& reduced);

} // namespace kvopt::driver
