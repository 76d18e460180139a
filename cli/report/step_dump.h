// Steps of a session as files, in the form that recorded reference outputs have.
#pragma once

#include "runtime/session/session.h"

#include <string>

namespace kvopt::cli {

/// Writes `step<k>_q<n>/{input,output}_<i>.pb` into a folder, k counting from 0 and n the tokens of
/// the step: everything a session was fed by its caller and every output that is no cache. What was
/// recorded from an empty session on, `kvopt verify --reference` replays.
class StepDump {
public:
  /// Creates the folder, or takes an empty one; fails for any other.
  static llvm::Expected<StepDump> create(const std::string& folder);

  llvm::Error write(int64_t tokens, llvm::ArrayRef<runtime::NamedTensor> inputs,
                    const runtime::StepResult& result);

private:
  explicit StepDump(std::string path) : folder(std::move(path)) {}
  std::string folder;
  int64_t steps = 0;
};

} // namespace kvopt::cli
