// What the program arranges with the operating system before it starts.
#pragma once

#include <string>

namespace kvopt::cli {

/// Prepares a process that does nothing but run kvopt; for `main`, before anything else.
/// - Closed standard streams are opened on /dev/null, so that no file that is opened later becomes
///   one of them. Printing to standard output fails then, as it would have.
/// - SIGPIPE and SIGXFSZ are ignored: writing gives an error instead. `endByClosedPipe` raises
///   SIGPIPE where that error concerns results.
/// - SIGTERM, SIGINT, SIGHUP, SIGQUIT and SIGXCPU remove temporary files, wait for files that are
///   being put in their places, and end the process as they do without a handler. A signal that
///   was ignored stays ignored.
/// - SIGBUS in a mapped file, which means that another process made the file shorter, is an error
///   that names the file, with exit code 3.
void prepareProcess();

/// Ends the process as SIGPIPE does, for results whose reader has closed the pipe; removes
/// temporary files before. Returns where SIGPIPE was ignored when the process started, and in
/// processes that `prepareProcess` did not prepare: there it is an error like any other.
void endByClosedPipe();

/// Makes the error for a file that became shorter the JSON object of a failed command, too. An
/// empty command means that errors are text only.
void reportTruncationAsJson(const std::string& command);

} // namespace kvopt::cli
