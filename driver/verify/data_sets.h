// Verification of a model against data sets in the format of ONNX's own node tests.
#pragma once

#include "driver/verify/verification.h"
#include "runtime/equivalence/data_sets.h"

namespace kvopt::driver {

/// Imports the model and runs it once per data set in `folder` (runtime/equivalence/data_sets.h).
llvm::Expected<VerificationReport> verifyDataSets(const std::string& modelPath,
                                                  const std::string& folder,
                                                  const runtime::DataSetTolerance& tolerance,
                                                  unsigned threads, const Toolkit& toolkit);

} // namespace kvopt::driver
