// Results of a comparison with data sets, as JSON and as text.
#pragma once

#include "driver/verify/verification.h"
#include "support/json.h"

namespace kvopt::cli {

/// `kvopt/verify/1`: one step per data set, whose phase is the name of its folder. `tokens_equal`
/// is null, because no output is known to be scores.
OrderedJson dataSetJson(const driver::VerificationReport& report);

/// One line for all data sets: outputs, largest difference, whether equal. Then one line per output
/// with another element type or shape.
std::string dataSetSummary(const driver::VerificationReport& report);

} // namespace kvopt::cli
