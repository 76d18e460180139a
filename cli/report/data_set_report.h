// Results of a comparison with data sets, as JSON and as text.
#pragma once

#include "driver/verify/verification.h"
#include "support/json.h"

namespace kvopt::cli {

/// The document `kvopt/verify/1`, with one step per data set. Its phase is the name of the folder.
/// `tokens_equal` is null, because outputs are not known to be scores.
OrderedJson dataSetJson(const driver::VerificationReport& report);

/// One line for all data sets: outputs, largest difference, and verdict. Then one line for each
/// output with another element type or shape.
std::string dataSetSummary(const driver::VerificationReport& report);

} // namespace kvopt::cli
