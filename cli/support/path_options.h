// Options that take a path: their files are declared, and compared, before a command starts.
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

/// What a command does with the path of an option.
enum class PathUse {
  Model,        ///< Reads it and every other file of the model.
  Input,        ///< Reads a file, or all files of a folder.
  Output,       ///< Writes a file.
  OutputFolder, ///< Writes files into a folder.
};

/// Registers the inputs and declares the outputs that the arguments of the chosen command name, in
/// the files of the run. Fails where they have a file in common. With `--dry-run`, nothing is an
/// output.
llvm::Error registerPaths(const CLI::App& command, const CommandContext& context);

/// What tests and tools may know of an option.
struct OptionFacts {
  std::string command;
  /// With its dashes, the long one of several; of an argument, its name.
  std::string name;
  bool isRequired = false;
  /// What its path is for; nullopt for options without.
  std::optional<PathUse> path;
  /// Whether any text is a value.
  bool takesFreeText = false;
  /// The value before the arguments are read, as the command initializes it; empty for options
  /// without a default.
  std::string initial;
};

/// The options of all commands.
std::vector<OptionFacts> optionFacts(const CommandContext& context);

} // namespace kvopt::cli
