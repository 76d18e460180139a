// kvopt completion: a script for a shell, made from the options that the program has.
#include "cli/support/completion_script.h"

#include "cli/support/command.h"

#include <CLI/CLI.hpp>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

namespace kvopt::cli {
namespace {

/// The values that IsMember allows, which CLI11 tells in the name of the type: TEXT:{a,b,c}.
std::vector<std::string> choicesOf(const CLI::Option& option) {
  std::string type = option.get_type_name();
  auto [before, after] = llvm::StringRef(type).split('{');
  std::vector<std::string> choices;
  llvm::SmallVector<llvm::StringRef, 8> words;
  after.split('}').first.split(words, ',', -1, false);
  for (llvm::StringRef word : words)
    choices.push_back(word.str());
  return choices;
}

CompletionOption describe(const CLI::Option& option) {
  CompletionOption described;
  for (const std::string& name : option.get_snames())
    described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames())
    described.names.push_back("--" + name);
  described.description = option.get_description();
  described.takesValue = option.get_expected_max() > 0;
  described.choices = choicesOf(option);
  return described;
}

std::vector<CompletionCommand> describe(const CLI::App& app) {
  std::vector<CompletionCommand> commands;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    CompletionCommand command{sub->get_name(), sub->get_description(), {}};
    for (const CLI::Option* option : sub->get_options())
      command.options.push_back(describe(*option));
    commands.push_back(std::move(command));
  }
  return commands;
}

} // namespace

void addCompletionCommand(CLI::App& app, CommandContext& context) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes kvopt in a shell");
  command->footer("Examples:\n"
                  "  source <(kvopt completion bash)\n"
                  "  kvopt completion zsh > ~/.zfunc/_kvopt\n"
                  "  kvopt completion fish > ~/.config/fish/completions/kvopt.fish");
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([shell, &app, &context] {
    context.action = [shell, &app]() -> llvm::Expected<ExitCode> {
      std::vector<CompletionCommand> commands = describe(app);
      printOut(*shell == "bash"  ? bashCompletion(commands)
               : *shell == "zsh" ? zshCompletion(commands)
                                 : fishCompletion(commands));
      return ExitCode::Done;
    };
  });
}

} // namespace kvopt::cli
