// Commands that run models, in a build without the runtime: each ends with one error.
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "support/format.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;

namespace {

void addMissing(CLI::App& app, Command kind, CommandContext& context) {
  CLI::App* command = addCommand(app, kind);
  CommandOptions(*command, context, kind).addCommon();
  command->allow_extras();
  command->callback([kind, &context] {
    context.action = [kind] {
      return llvm::Expected<ExitCode>(needsRuntime(formatted("kvopt {}", wordOf(kind))));
    };
  });
}

} // namespace

void addVerifyCommand(CLI::App& app, CommandContext& context) {
  addMissing(app, Command::Verify, context);
}

void addRunCommand(CLI::App& app, CommandContext& context) {
  addMissing(app, Command::Run, context);
}

void addBenchCommand(CLI::App& app, CommandContext& context) {
  addMissing(app, Command::Bench, context);
}

} // namespace kvopt::cli
