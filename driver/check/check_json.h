// Results of a check as JSON.
#pragma once

#include "driver/check/check_files.h"
#include "support/json.h"

namespace kvopt::driver {

/// The document kvopt/check/1.
OrderedJson checkJson(const FileCheck& result);
/// The document kvopt/certificate/1.
OrderedJson certificateJson(const FileCheck& result);

} // namespace kvopt::driver
