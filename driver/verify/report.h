// What a verification found, as JSON and as text.
#pragma once

#include "driver/verify/verification.h"
#include "support/json.h"

namespace kvopt::driver {

/// `kvopt/verify/1`.
OrderedJson verificationJson(const VerificationReport& report);
/// Two lines: steps, largest difference and verdict; what was covered and what was not. Two more
/// for quantized caches, and one for a text.
std::string verificationSummary(const VerificationReport& report);

} // namespace kvopt::driver
