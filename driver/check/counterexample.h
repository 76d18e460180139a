// Counterexamples: the step in which two models differ, as a recording that can be replayed.
#pragma once

#include "driver/check/check_files.h"
#include "support/file_access.h"
#include "support/json.h"

#include <optional>
#include <string>

namespace kvopt::driver {

/// A recording of one step of the first model, and what its replay with the second one shows.
struct Counterexample {
  std::string folder;
  std::string command; ///< compares the second model with the recording
  /// Whether the command finds a difference; nullopt if it cannot compare them.
  std::optional<bool> isVisible;
  /// The largest difference, or the reason that nothing is compared.
  std::string remark;
};

/// Whether the check has found a step in which an output differs.
bool hasCounterexample(const FileCheck& result);

/// Runs the first model in the step of the first output that differs, and writes its inputs and
/// outputs to `folder`, as recorded steps (runtime/equivalence/reference_steps.h). Integers and
/// masks are those of the check; other numbers are random. Then compares the second model with the
/// recording. Requires hasCounterexample. Fails if an input cannot be written, and if the folder
/// exists and is not empty.
llvm::Expected<Counterexample> writeCounterexample(const FileCheck& result,
                                                   const CheckRequest& request,
                                                   const std::string& folder,
                                                   const Toolkit& toolkit, FileAccess& files);

/// Lines about the replay.
SafeText counterexampleText(const Counterexample& example);
OrderedJson counterexampleJson(const Counterexample& example);

} // namespace kvopt::driver
