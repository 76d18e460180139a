// Options that take a path: what each is for is recorded, and their files are compared by it.
#pragma once

#include "llvm/Support/Error.h"

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
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

/// An option that was added by one of the functions below.
struct PathOption {
  const CLI::App* command = nullptr;
  const CLI::Option* option = nullptr;
  PathUse use = PathUse::Input;
  std::string role; ///< what an input is, as in "the cache"; empty for others
};

/// Adds an option or argument whose values are models, one or several.
CLI::Option* addModelPath(CLI::App& command, CommandContext& context, const std::string& name,
                          std::string& value, const std::string& description);
CLI::Option* addModelPath(CLI::App& command, CommandContext& context, const std::string& name,
                          std::vector<std::string>& values, const std::string& description);
/// Adds an option whose value is another file that is read, or a folder of such files. `role` says
/// what it is, with its article: "the cache".
CLI::Option* addInputPath(CLI::App& command, CommandContext& context, const std::string& name,
                          std::string& value, const std::string& role,
                          const std::string& description);
/// Adds an option whose value is a file that is written.
CLI::Option* addOutputPath(CLI::App& command, CommandContext& context, const std::string& name,
                           std::string& value, const std::string& description);
/// Adds an option whose value is a folder that receives files.
CLI::Option* addOutputFolder(CLI::App& command, CommandContext& context, const std::string& name,
                             std::string& value, const std::string& description);

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
};

/// The options of all commands.
std::vector<OptionFacts> optionFacts(const CLI::App& app, const CommandContext& context);

} // namespace kvopt::cli
