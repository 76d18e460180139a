// Completion of the command line, written for a shell.
#pragma once

#include <string>
#include <vector>

namespace kvopt::cli {

struct CompletionOption {
  std::vector<std::string> names; ///< with their dashes; none for a positional argument
  std::string description;
  bool takesValue = false;
  std::vector<std::string> choices; ///< all values there are; empty: any, such as a file
  bool isList = false;              ///< several choices, separated by commas
  std::string extension;            ///< of files that are values, without the dot; empty: any
};

struct CompletionCommand {
  std::string name;
  std::string description;
  std::vector<CompletionOption> options;
};

/// A script that completes commands, options and their values, and files elsewhere: folders and
/// files of the extension. Descriptions may hold any characters; names, choices and extensions hold
/// letters, digits and dashes only.
std::string bashCompletion(const std::vector<CompletionCommand>& commands);
std::string zshCompletion(const std::vector<CompletionCommand>& commands);
std::string fishCompletion(const std::vector<CompletionCommand>& commands);

} // namespace kvopt::cli
