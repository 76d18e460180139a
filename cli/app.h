// The command line: subcommands, common options, exit codes.
#pragma once

#include "cli/support/path_options.h"

#include <vector>

namespace kvopt::driver {
struct Toolkit;
} // namespace kvopt::driver

namespace kvopt::cli {

/// Parses the arguments, runs the subcommand and returns the exit code. Nothing escapes it.
/// `extend`, when given, adds what a program of one's own knows beside the built-in things.
int runApp(int argc, const char* const* argv, void (*extend)(driver::Toolkit& toolkit) = nullptr);

/// What tests may know of the options of all commands.
std::vector<OptionFacts> describeOptions();

/// The same as runApp for a process that does nothing else: a command may end it with that exit
/// code, without the time that it takes to destroy its models.
int runProgram(int argc, const char* const* argv);

} // namespace kvopt::cli
