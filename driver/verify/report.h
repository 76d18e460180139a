// Report of a verification, as JSON and as text.
#pragma once

#include "driver/verify/verification.h"
#include "support/json_fwd.h"

namespace kvopt::driver {

/// The document `kvopt/verify/1`.
OrderedJson verificationJson(const VerificationReport& report);
/// Lines of the report: the verdict with its measurements; the effect of rounding or quantized
/// caches, if any; and what was covered and what was not.
std::vector<std::string> verificationVerdict(const VerificationReport& report);
/// The lines as one text, with the likelihood of a text file if one was given. With `isDetailed`,
/// also differences in units in the last place, and the tolerance.
std::string verificationSummary(const VerificationReport& report, bool isDetailed = false);

} // namespace kvopt::driver
