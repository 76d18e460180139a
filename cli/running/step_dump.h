// Steps of a session as files, in the format of recorded reference outputs.
#pragma once

#include "runtime/session/session.h"
#include "support/output_folder.h"

#include <string>

namespace kvopt::cli {

/// Writes `step<k>_q<n>/{input,output}_<i>.pb` to a folder, where k counts from 0 and n is the
/// number of tokens of the step: all inputs from the session's caller and all outputs other than
/// caches. `kvopt verify --reference` replays steps that start from an empty session. The files
/// appear with `commit`; without it, and after any failure, no file remains.
class StepDump {
public:
  /// A new folder, or an existing empty one; fails otherwise.
  static llvm::Expected<StepDump> create(const std::string& folder, FileAccess& files);

  llvm::Error write(int64_t tokens, llvm::ArrayRef<runtime::NamedTensor> inputs,
                    const runtime::StepResult& result);
  /// Puts the folder in place. Call it once, at the end.
  llvm::Error commit() { return folder.commit(); }

private:
  explicit StepDump(OutputFolder output) : folder(std::move(output)) {}
  OutputFolder folder;
  int64_t steps = 0;
};

} // namespace kvopt::cli
