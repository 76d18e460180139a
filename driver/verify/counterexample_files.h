// Counterexamples as files.
#pragma once

#include "driver/check/check_files.h"
#include "driver/check/counterexample.h"
#include "support/file_access.h"

namespace kvopt::driver {

/// Runner::writeCounterexample. The inputs are those of floatInputs. Fails if an input cannot be
/// written, and if the folder exists and is not empty.
llvm::Expected<std::optional<Counterexample>> writeStep(const FileCheck& result,
                                                        const CheckRequest& request,
                                                        const std::string& folder,
                                                        const Toolkit& toolkit, FileAccess& files);

} // namespace kvopt::driver
