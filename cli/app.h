// The command line: subcommands, common options, exit codes.
#pragma once

#include "cli/support/path_options.h"

#include <vector>

namespace kvopt::driver {
struct Toolkit;
} // namespace kvopt::driver

namespace kvopt::cli {

/// Parses the arguments, runs the subcommand and returns the exit code; never throws. `extend`, if
/// not null, adds definitions to the built-in ones.
int runApp(int argc, const char* const* argv, void (*extend)(driver::Toolkit& toolkit) = nullptr);

/// Descriptions of the options of all commands, for tests.
std::vector<OptionFacts> describeOptions();

/// runApp for a process that does nothing else: a command may end the process with the exit code,
/// without destroying its models.
int runProgram(int argc, const char* const* argv);

} // namespace kvopt::cli
