// Exit codes of the program, documented for scripts.
#pragma once

#include "support/diagnostic.h"

namespace kvopt::cli {

enum class ExitCode : int {
  Done = 0,            ///< done, or compared and equal
  Different = 1,       ///< compared and different, or a requirement is not met
  Usage = 2,           ///< wrong arguments
  BadInput = 3,        ///< input unreadable or invalid
  MissingOperator = 4, ///< the runtime lacks an operator that the model uses
  Internal = 5,        ///< error in kvopt itself
};

/// Exit code for an error of this kind.
ExitCode exitCodeFor(Diagnostic::Kind kind);

} // namespace kvopt::cli
