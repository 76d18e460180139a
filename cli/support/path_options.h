// Options with a path. Their files are declared and checked for conflicts before a command starts.
#pragma once

#include "llvm/Support/Error.h"

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
} // namespace CLI

namespace kvopt::cli {

struct CommandContext;

/// Use of an option's path by a command.
enum class PathUse {
  Model,        ///< Reads the model and all files that belong to it.
  Input,        ///< Reads a file, or all files of a folder.
  Output,       ///< Writes a file.
  OutputFolder, ///< Writes files to a folder.
};

/// Registers the inputs and declares the outputs in the arguments of the selected command. Fails if
/// an output is also an input or another output. With `--dry-run`, there are no outputs.
llvm::Error registerPaths(const CLI::App& command, const CommandContext& context);

/// Description of an option for tests and tools.
struct OptionFacts {
  std::string command;
  /// Name with its dashes (the long one if there are several); for an argument, its name.
  std::string name;
  bool isRequired = false;
  /// Use of its path; nullopt for options without a path.
  std::optional<PathUse> path;
  /// Whether every text is a valid value.
  bool takesFreeText = false;
  /// Value before the arguments are parsed, as initialized by the command; empty without a default.
  std::string initial;
};

/// Options of all commands.
std::vector<OptionFacts> optionFacts(const CommandContext& context);

} // namespace kvopt::cli
