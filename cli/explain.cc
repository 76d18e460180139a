// kvopt explain: for every attention layer, the rule that matched and its facts, or the reason that
// none did.
#include "cli/report/explanation_report.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "driver/explain/explanation_json.h"
#include "support/json.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
namespace {

struct ExplainOptions {
  std::string model;
  driver::ExplainRequest request;
  driver::FormWords words;
};

llvm::Expected<ExitCode> runExplain(ExplainOptions& options, const CommandContext& context) {
  if (llvm::Error error = driver::readForm(options.words, options.request))
    return error;
  auto explanation = driver::explain(options.model, options.request, context.toolkit);
  if (!explanation)
    return explanation.takeError();
  context.detailPasses(explanation->recovered.timings);
  if (context.common.json())
    printJson(explanationJson(options.model, *explanation));
  else
    printWrapped(explanationText(options.model, *explanation, Style(context.common),
                                 context.common.verbose));
  return ExitCode::Done;
}

} // namespace

void addExplainCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "Every attention layer: how it was matched, or why missed");
  CommandOptions add(*command, context, driver::Command::Explain);
  add.add("model", options->model);
  addExplainOptions(add, options->request, options->words);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return runExplain(*options, context); };
  });
}

} // namespace kvopt::cli
