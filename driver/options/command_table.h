// Table of commands: usage, purpose and examples. The command line, its help, the manual page and
// shell completion are generated from it.
#pragma once

#include "driver/options/option_table.h"

namespace kvopt::driver {

/// A command line to copy, and its purpose. A test runs all examples.
struct CommandExample {
  /// A line for a shell. Models that ship with kvopt are named by their paths; other models come
  /// from the examples of `gen` and of the commands that write files.
  const char* line;
  /// One clause, without a period.
  const char* purpose;
};

struct CommandInfo {
  const char* word;
  /// The arguments after the command's name; one line for each way to use the command.
  std::span<const char* const> usages;
  /// One clause for lists of commands, without a period.
  const char* summary;
  /// A paragraph of full sentences.
  const char* description;
  std::span<const CommandExample> examples;
};

const CommandInfo& commandInfo(Command command);

/// A few examples for new users.
std::span<const CommandExample> firstExamples();

} // namespace kvopt::driver
