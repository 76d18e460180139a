// kvopt completion: a shell script, generated from the table of options.
#include "cli/support/completion_script.h"

#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "driver/options/command_table.h"
#include "passes/known_names.h"

#include <CLI/CLI.hpp>

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

namespace kvopt::cli {
using namespace driver;
using namespace passes;

namespace {

/// All valid values of an option; none if any text is valid.
std::vector<std::string> choicesOf(const OptionInfo& option, const Toolkit& toolkit) {
  std::vector<std::string> names;
  switch (option.type) {
  case OptionType::Rule:
    return ruleNames(toolkit.rules);
  case OptionType::Passes:
    names = passNames(toolkit.passes);
    names.emplace_back("all");
    return names;
  case OptionType::Pipeline:
    return passNames(toolkit.passes);
  case OptionType::Parts:
    names = ruleNames(toolkit.rules);
    for (const std::string& pass : passNames(toolkit.passes))
      names.push_back(pass);
    return names;
  default:
    return option.words();
  }
}

bool isModel(const OptionInfo& option) {
  return option.type == OptionType::Model || option.type == OptionType::Models;
}

CompletionOption describe(Command command, const OptionInfo& option, const Toolkit& toolkit) {
  CompletionOption described;
  if (!option.isArgument())
    for (llvm::StringRef name : llvm::split(option.names, ','))
      described.names.push_back(name.str());
  described.description = option.sentence;
  described.takesValue = option.type != OptionType::Flag && option.type != OptionType::CountedFlag;
  described.choices = choicesOf(option, toolkit);
  described.isList = option.type == OptionType::Words || option.type == OptionType::Pipeline;
  // `opt` also reads the textual form.
  if (isModel(option) && command != Command::Opt)
    described.extension = "onnx";
  return described;
}

std::vector<CompletionCommand> describeCommands(const Toolkit& toolkit) {
  std::vector<CompletionCommand> commands;
  for (unsigned i = 0; i < commandCount; ++i) {
    const auto command = static_cast<Command>(i);
    CompletionCommand described{wordOf(command), commandInfo(command).summary, {}};
    for (const OptionInfo* option : optionsOf(command))
      described.options.push_back(describe(command, *option, toolkit));
    described.options.push_back(describe(command, helpOption(), toolkit));
    commands.push_back(std::move(described));
  }
  return commands;
}

} // namespace

void addCompletionCommand(CLI::App& app, CommandContext& context) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = addCommand(app, Command::Completion);
  CommandOptions(*command, context, Command::Completion).add("shell", *shell);
  command->callback([shell, &context] {
    context.action = [shell, &context]() -> llvm::Expected<ExitCode> {
      std::vector<CompletionCommand> commands = describeCommands(context.toolkit);
      printOut(*shell == "bash"  ? bashCompletion(commands)
               : *shell == "zsh" ? zshCompletion(commands)
                                 : fishCompletion(commands));
      return ExitCode::Done;
    };
  });
}

} // namespace kvopt::cli
