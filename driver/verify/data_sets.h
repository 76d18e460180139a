// Verification of a model against data sets in the format of ONNX's own node tests.
#pragma once

#include "driver/verify/verification.h"
#include "runtime/equivalence/data_sets.h"
#include "support/json_fwd.h"

namespace kvopt::driver {

/// Imports the model and runs it once per data set in `folder` (runtime/equivalence/data_sets.h).
llvm::Expected<VerificationReport> verifyDataSets(const std::string& modelPath,
                                                  const std::string& folder,
                                                  const runtime::DataSetTolerance& tolerance,
                                                  unsigned threads, const Toolkit& toolkit);

/// The document `kvopt/verify/1`, with one step per data set. Its phase is the name of the folder.
/// `tokens_equal` is null, because outputs are not known to be scores.
OrderedJson dataSetJson(const VerificationReport& report);

} // namespace kvopt::driver
