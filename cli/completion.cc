// kvopt completion: a script for a shell, made from the options that the program has.
#include "cli/support/completion_script.h"

#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "driver/options/command_table.h"

#include <CLI/CLI.hpp>

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

namespace kvopt::cli {
using namespace driver;

namespace {

CompletionOption describe(const OptionInfo& option) {
  CompletionOption described;
  if (!option.isArgument())
    for (llvm::StringRef name : llvm::split(option.names, ','))
      described.names.push_back(name.str());
  described.description = option.sentence;
  described.takesValue = option.type != OptionType::Flag && option.type != OptionType::CountedFlag;
  described.choices = option.words();
  return described;
}

std::vector<CompletionCommand> describeCommands() {
  std::vector<CompletionCommand> commands;
  for (unsigned i = 0; i < commandCount; ++i) {
    const auto command = static_cast<Command>(i);
    CompletionCommand described{wordOf(command), commandInfo(command).summary, {}};
    for (const OptionInfo* option : optionsOf(command))
      described.options.push_back(describe(*option));
    described.options.push_back(describe(helpOption()));
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
    context.action = [shell]() -> llvm::Expected<ExitCode> {
      std::vector<CompletionCommand> commands = describeCommands();
      printOut(*shell == "bash"  ? bashCompletion(commands)
               : *shell == "zsh" ? zshCompletion(commands)
                                 : fishCompletion(commands));
      return ExitCode::Done;
    };
  });
}

} // namespace kvopt::cli
