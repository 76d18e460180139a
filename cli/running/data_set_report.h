// Results of a comparison with data sets, as text.
#pragma once

#include "driver/verify/verification.h"

#include <string>

namespace kvopt::cli {

/// One line for all data sets: outputs, largest difference, and verdict. Then one line for each
/// output with another element type or shape.
std::string dataSetSummary(const driver::VerificationReport& report);

} // namespace kvopt::cli
