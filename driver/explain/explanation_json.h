// Output of kvopt explain as JSON.
#pragma once

#include "driver/explain/explanation.h"
#include "support/json_fwd.h"

namespace kvopt::driver {

/// The document kvopt/explain/1 for the model at `path`.
OrderedJson explanationJson(const std::string& path, const Explanation& explanation);

} // namespace kvopt::driver
