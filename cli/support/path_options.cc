// Declaring the files of options that take a path.
#include "cli/support/path_options.h"

#include "cli/support/command.h"
#include "support/file_access.h"
#include "support/format.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;

namespace {

/// Use of an option's path by a command; nullopt for options without a path.
std::optional<PathUse> useOf(const OptionInfo& info) {
  switch (info.type) {
  case OptionType::Model:
  case OptionType::Models:
    return PathUse::Model;
  case OptionType::Input:
    return PathUse::Input;
  case OptionType::Output:
    return PathUse::Output;
  case OptionType::OutputFolder:
    return PathUse::OutputFolder;
  default:
    return std::nullopt;
  }
}

bool isInput(PathUse use) { return use == PathUse::Model || use == PathUse::Input; }

/// Description of a file that an option names.
std::string roleOf(const AddedOption& added, const std::string& file) {
  return useOf(*added.info) == PathUse::Model
             ? formatted("the model '{}'", file)
             : formatted("{} of {}", added.role, added.info->name());
}

bool isDryRun(const CLI::App& command) {
  const CLI::Option* option = command.get_option_no_throw("--dry-run");
  return option && option->count() != 0;
}

} // namespace

llvm::Error registerPaths(const CLI::App& command, const CommandContext& context) {
  FileAccess& files = *context.toolkit.files;
  for (const AddedOption& added : context.options)
    if (const auto use = useOf(*added.info); use && added.app == &command && isInput(*use))
      for (const std::string& file : added.option->results())
        if (llvm::Error error = files.reads(file, roleOf(added, file)))
          return error;
  if (isDryRun(command))
    return llvm::Error::success();
  for (const AddedOption& added : context.options)
    if (const auto use = useOf(*added.info); use && added.app == &command && !isInput(*use)) {
      const std::string name(added.info->name());
      for (const std::string& file : added.option->results())
        if (llvm::Error error = *use == PathUse::OutputFolder ? files.writesFolder(file, name)
                                                              : files.writes(file, name))
          return error;
    }
  return llvm::Error::success();
}

std::vector<OptionFacts> optionFacts(const CommandContext& context) {
  std::vector<OptionFacts> facts;
  for (const AddedOption& added : context.options) {
    OptionFacts fact;
    fact.command = wordOf(added.command);
    fact.name = added.info->name();
    fact.isRequired = added.option->get_required();
    fact.path = useOf(*added.info);
    fact.takesFreeText = !useOf(*added.info) && added.info->words().empty() &&
                         added.info->type >= OptionType::Text &&
                         added.info->type <= OptionType::Pipeline;
    fact.initial = added.initial;
    facts.push_back(std::move(fact));
  }
  return facts;
}

} // namespace kvopt::cli
