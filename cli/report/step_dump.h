// Steps of a session as files, in the form that recorded reference outputs have.
#pragma once

#include "runtime/session/session.h"
#include "support/output_folder.h"

#include <string>

namespace kvopt::cli {

/// Writes `step<k>_q<n>/{input,output}_<i>.pb` into a folder, k counting from 0 and n the tokens of
/// the step: everything a session was fed by its caller and every output that is no cache. What was
/// recorded from an empty session on, `kvopt verify --reference` replays. The steps appear with
/// `commit`; without it, and after any failure, nothing is left.
class StepDump {
public:
  /// A new folder, or an empty one; fails for any other.
  static llvm::Expected<StepDump> create(const std::string& folder, FileAccess& files);

  llvm::Error write(int64_t tokens, llvm::ArrayRef<runtime::NamedTensor> inputs,
                    const runtime::StepResult& result);
  /// Puts the folder in its place. Once, at the end.
  llvm::Error commit() { return folder.commit(); }

private:
  explicit StepDump(OutputFolder output) : folder(std::move(output)) {}
  OutputFolder folder;
  int64_t steps = 0;
};

} // namespace kvopt::cli
