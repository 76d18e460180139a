// Command lines that run in a child process with a time limit.
#pragma once

#include "llvm/Support/Error.h"

#include <chrono>
#include <string>

namespace kvopt {

/// End of a command line.
struct CommandEnd {
  /// Exit code as a shell reports it: 128 plus the signal's number for a command that a signal
  /// ended.
  int code = 0;
  /// Whether the command was ended because it exceeded its time. `code` is then undefined.
  bool isTimeout = false;
};

/// Runs `command` by `/bin/sh -c`, with /dev/null as its standard streams, and waits for it. The
/// command has its own process group, which is ended when the time is over and when a signal ends
/// this process (support/termination.h). Processes that leave the group are not ended. Fails if the
/// shell cannot be started. One thread at a time.
llvm::Expected<CommandEnd> runCommand(const std::string& command, std::chrono::milliseconds limit);

/// Returns `text` as one word of a shell's command line. Text that needs no quotes is unchanged.
std::string shellWord(const std::string& text);

/// Ends the running command's process group, if there is one. Async-signal-safe.
void endRunningCommand();

} // namespace kvopt
