// The recommendation for a model: the last line of inspect.
#pragma once

#include "driver/recover.h"

#include <string>

namespace kvopt::driver {

/// A sentence, and the command to run next; the command may be empty.
struct Recommendation {
  std::string sentence;
  std::string command;

  /// `ONNX Runtime: kvopt rewrite model.onnx -o OUT.onnx`.
  std::string text() const { return command.empty() ? sentence : sentence + ": " + command; }
};

/// The recommendation for the model that was recovered from `path`.
Recommendation recommend(const std::string& path, const RecoveredModel& recovered,
                         const Toolkit& toolkit);

} // namespace kvopt::driver
