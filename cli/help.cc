// kvopt help: the help of a command, or the manual page.
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "cli/support/help_text.h"
#include "cli/support/man_page.h"
#include "cli/support/terminal.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;

namespace {

struct HelpOptions {
  std::string command;
  bool isManual = false;
};

std::string textFor(const HelpOptions& options) {
  if (options.isManual)
    return manPage(KVOPT_VERSION);
  for (unsigned i = 0; i < commandCount; ++i)
    if (options.command == wordOf(static_cast<Command>(i)))
      return commandHelp(static_cast<Command>(i), textColumns());
  return programHelp(textColumns());
}

} // namespace

void addHelpCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<HelpOptions>();
  CLI::App* command = addCommand(app, Command::Help);
  CommandOptions add(*command, context, Command::Help);
  CLI::Option* word = add.add("command", options->command)->required(false);
  add.add("--man", options->isManual)->excludes(word);
  command->callback([options, &context] {
    context.action = [options]() -> llvm::Expected<ExitCode> {
      printOut(textFor(*options));
      return ExitCode::Done;
    };
  });
}

} // namespace kvopt::cli
