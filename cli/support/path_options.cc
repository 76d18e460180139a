// Recording the options that take a path.
#include "cli/support/path_options.h"

#include "cli/support/command.h"
#include "support/file_access.h"
#include "support/format.h"

#include <CLI/CLI.hpp>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

namespace kvopt::cli {
namespace {

template <class Value>
CLI::Option* addPath(CLI::App& command, CommandContext& context, const std::string& name,
                     Value& value, const std::string& description, PathUse use,
                     std::string role = "") {
  CLI::Option* option = command.add_option(name, value, description);
  context.paths.push_back({&command, option, use, std::move(role)});
  return option;
}

/// The name of an option in messages: "--plot".
std::string nameOf(const CLI::Option& option) {
  if (!option.get_lnames().empty())
    return "--" + option.get_lnames().front();
  if (!option.get_snames().empty())
    return "-" + option.get_snames().front();
  return option.get_name();
}

bool isInput(const PathOption& path) {
  return path.use == PathUse::Model || path.use == PathUse::Input;
}

/// What a file is that an option names.
std::string roleOf(const PathOption& path, const std::string& file) {
  return path.use == PathUse::Model ? fmt::format("the model '{}'", file)
                                    : fmt::format("{} of {}", path.role, nameOf(*path.option));
}

bool isDryRun(const CLI::App& command) {
  const CLI::Option* option = command.get_option_no_throw("--dry-run");
  return option && option->count() != 0;
}

} // namespace

CLI::Option* addModelPath(CLI::App& command, CommandContext& context, const std::string& name,
                          std::string& value, const std::string& description) {
  return addPath(command, context, name, value, description, PathUse::Model);
}

CLI::Option* addModelPath(CLI::App& command, CommandContext& context, const std::string& name,
                          std::vector<std::string>& values, const std::string& description) {
  return addPath(command, context, name, values, description, PathUse::Model);
}

CLI::Option* addInputPath(CLI::App& command, CommandContext& context, const std::string& name,
                          std::string& value, const std::string& role,
                          const std::string& description) {
  return addPath(command, context, name, value, description, PathUse::Input, role);
}

CLI::Option* addOutputPath(CLI::App& command, CommandContext& context, const std::string& name,
                           std::string& value, const std::string& description) {
  return addPath(command, context, name, value, description, PathUse::Output);
}

CLI::Option* addOutputFolder(CLI::App& command, CommandContext& context, const std::string& name,
                             std::string& value, const std::string& description) {
  return addPath(command, context, name, value, description, PathUse::OutputFolder);
}

llvm::Error registerPaths(const CLI::App& command, const CommandContext& context) {
  FileAccess& files = *context.toolkit.files;
  for (const PathOption& path : context.paths)
    if (path.command == &command && isInput(path))
      for (const std::string& file : path.option->results())
        if (llvm::Error error = files.reads(file, roleOf(path, file)))
          return error;
  if (isDryRun(command))
    return llvm::Error::success();
  for (const PathOption& path : context.paths)
    if (path.command == &command && !isInput(path))
      for (const std::string& file : path.option->results())
        if (llvm::Error error = path.use == PathUse::OutputFolder
                                    ? files.writesFolder(file, nameOf(*path.option))
                                    : files.writes(file, nameOf(*path.option)))
          return error;
  return llvm::Error::success();
}

std::vector<OptionFacts> optionFacts(const CLI::App& app, const CommandContext& context) {
  std::vector<OptionFacts> facts;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    for (const CLI::Option* option : command->get_options()) {
      OptionFacts fact;
      fact.command = command->get_name();
      fact.name = nameOf(*option);
      fact.isRequired = option->get_required();
      const auto path = llvm::find_if(
          context.paths, [&](const PathOption& each) { return each.option == option; });
      if (path != context.paths.end())
        fact.path = path->use;
      // CLI11 names the type first, then the values that a check allows.
      const std::string type = option->get_type_name();
      fact.takesFreeText = option->get_expected_max() > 0 && type.starts_with("TEXT") &&
                           type.find('{') == std::string::npos;
      facts.push_back(std::move(fact));
    }
  return facts;
}

} // namespace kvopt::cli
