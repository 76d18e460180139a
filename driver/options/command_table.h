// Every command in one table: usage, what it is for, and examples. The command line, its help, the
// manual page and shell completion are made from it.
#pragma once

#include "driver/options/option_table.h"

namespace kvopt::driver {

/// A command line to copy, and what it does. A test runs all of them.
struct CommandExample {
  /// A line for a shell. Models that ship with kvopt are named by their paths; other models come
  /// from the examples of `gen` and of the commands that write files.
  const char* line;
  /// One clause, without a period.
  const char* purpose;
};

struct CommandInfo {
  const char* word;
  /// The arguments after the word; one line for each way to use the command.
  std::span<const char* const> usages;
  /// One clause for lists of commands, without a period.
  const char* summary;
  /// A paragraph of full sentences.
  const char* description;
  std::span<const CommandExample> examples;
};

const CommandInfo& commandInfo(Command command);

/// A few lines for someone who meets the program for the first time.
std::span<const CommandExample> firstExamples();

} // namespace kvopt::driver
