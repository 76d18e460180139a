// Scripts for shells that complete kvopt's command line.
#pragma once

#include <string>
#include <vector>

namespace kvopt::cli {

struct CompletionOption {
  std::vector<std::string> names; ///< names with their dashes; none for a positional argument
  std::string description;
  bool takesValue = false;
  std::vector<std::string> choices; ///< all valid values; empty: any value, such as a file
  bool isList = false;              ///< whether a value is a list of choices, separated by commas
  std::string extension; ///< extension of files that are valid values, without the dot; empty: any
};

struct CompletionCommand {
  std::string name;
  std::string description;
  std::vector<CompletionOption> options;
};

/// A script that completes commands, options, values, and elsewhere files: folders, and files with
/// the extension. Descriptions may contain any characters; names, choices and extensions contain
/// only letters, digits and dashes.
std::string bashCompletion(const std::vector<CompletionCommand>& commands);
std::string zshCompletion(const std::vector<CompletionCommand>& commands);
std::string fishCompletion(const std::vector<CompletionCommand>& commands);

} // namespace kvopt::cli
