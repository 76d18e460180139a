// Streams and signals of the process.
#pragma once

#include <string>

namespace kvopt::cli {

/// Prepares a process that only runs kvopt. `main` calls it first.
/// - Closed standard streams are opened on /dev/null, so that no file that is opened later becomes
///   one of them. Printing to a closed standard output still fails.
/// - SIGPIPE and SIGXFSZ are ignored, so that writing fails with an error instead.
///   `endByClosedPipe` raises SIGPIPE if the error concerns results.
/// - SIGTERM, SIGINT, SIGHUP, SIGQUIT and SIGXCPU remove temporary files, wait until files are in
///   their places, and end the process as they do without a handler. Ignored signals stay ignored.
/// - SIGBUS in a mapped file, which means that another process has truncated the file, is an error
///   that names the file, with exit code 3.
void prepareProcess();

/// Removes temporary files and ends the process as SIGPIPE does. Call it when the reader of results
/// has closed the pipe. It returns if SIGPIPE was ignored when the process started, or if
/// `prepareProcess` was not called; the closed pipe is then an ordinary error.
void endByClosedPipe();

/// Also prints the error for a truncated file as the JSON object of a failed command. With an empty
/// command, errors are text only.
void reportTruncationAsJson(const std::string& command);

} // namespace kvopt::cli
