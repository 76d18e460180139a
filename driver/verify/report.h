// What a verification found, as JSON and as text.
#pragma once

#include "driver/verify/verification.h"
#include "support/json.h"

namespace kvopt::driver {

/// `kvopt/verify/1`.
OrderedJson verificationJson(const VerificationReport& report);
/// Lines: the verdict with what was measured; what rounding or quantization of the rows of caches
/// does, if any; and what was covered and what was not.
std::vector<std::string> verificationVerdict(const VerificationReport& report);
/// The same as one text, with what a text file says; with `isDetailed`, also differences in units
/// of the last place and the tolerance.
std::string verificationSummary(const VerificationReport& report, bool isDetailed = false);

} // namespace kvopt::driver
