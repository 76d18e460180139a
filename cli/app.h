// The command line: subcommands, common options, exit codes.
#pragma once

namespace kvopt {

/// Parses the arguments, runs the subcommand and returns the exit code. Nothing escapes it.
int runApp(int argc, const char* const* argv);

} // namespace kvopt
