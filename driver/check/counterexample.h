// Counterexamples: the step in which two models differ, as a recording that can be replayed.
#pragma once

#include "driver/check/check_files.h"
#include "support/file_access.h"

#include <optional>
#include <string>

namespace kvopt::driver {

/// A recording of one step of the first model, and what its replay with the second one shows.
struct Counterexample {
  std::string folder;
  /// Compares the second model with the recording; empty for a model of bytes.
  std::string command;
  /// Whether the command finds a difference; nullopt if it cannot compare them.
  std::optional<bool> isVisible;
  /// The largest difference, or the reason that nothing is compared.
  std::string remark;
};

/// Writes the step of the first output that differs, at least in exact arithmetic, to `folder`
/// (Runner::writeCounterexample). Writes nothing if `folder` is empty or if no output differs; the
/// result is then nullopt.
llvm::Expected<std::optional<Counterexample>>
writeCounterexample(const FileCheck& result, const CheckRequest& request, const std::string& folder,
                    const Toolkit& toolkit, FileAccess& files);

/// Lines about the replay.
SafeText counterexampleText(const Counterexample& example);

} // namespace kvopt::driver
