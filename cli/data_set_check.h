// Verification of a model against data sets in the form of ONNX's own node tests, and its report.
#pragma once

#include "cli/verification.h"
#include "runtime/data_sets.h"

namespace kvopt {

/// Imports the model and runs it once per data set in `folder` (runtime/data_sets.h).
llvm::Expected<VerificationReport> verifyDataSets(const std::string& modelPath,
                                                  const std::string& folder,
                                                  const DataSetTolerance& tolerance,
                                                  unsigned threads, const Registries& registries);

/// `kvopt/verify/1`: a step per data set, whose phase is the name of its folder. `tokens_equal` is
/// null, since no output is known to be scores.
OrderedJson dataSetJson(const VerificationReport& report);

/// One line for all data sets: outputs, largest difference, whether equal; then one line per output
/// of another element type or shape.
std::string dataSetSummary(const VerificationReport& report);

} // namespace kvopt
