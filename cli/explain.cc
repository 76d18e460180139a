// kvopt explain: for every attention site the rule that matched and its facts, or why it was
// missed.
#include "cli/report/explanation_report.h"
#include "cli/support/command.h"
#include "cli/support/form_options.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
namespace {

struct ExplainOptions {
  std::string model;
  driver::ExplainRequest request;
  driver::FormWords words;
};

llvm::Expected<ExitCode> runExplain(ExplainOptions& options, const CommandContext& context) {
  if (choosesForm(options.words)) {
    auto forms = driver::chooseForms(options.words);
    if (!forms)
      return forms.takeError();
    options.request.form = forms->front();
  }
  auto explanation = driver::explain(options.model, options.request, context.toolkit);
  if (!explanation)
    return explanation.takeError();
  context.detailPasses(explanation->recovered.timings);
  if (context.common.json())
    printJson(explanationJson(options.model, *explanation));
  else
    printOut(explanationText(options.model, *explanation, Style(context.common),
                             context.common.verbose));
  return ExitCode::Done;
}

} // namespace

void addExplainCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "Every attention site: how it was matched, or why missed");
  addModelPath(*command, context, "model", options->model, "ONNX file")->required();
  addFormOptions(*command, options->words);
  command->add_option("--layer", options->request.layer, "This site only");
  command->add_option("--rule", options->request.rule,
                      "Where this rule was applied, and how near it came");
  command->add_option("--step-budget", options->request.matcher.stepBudget,
                      "Places that the matcher tries at one root before it gives up");
  command->add_option("--disable", options->request.disabled, "A rule or pass to leave out");
  addCommonOptions(*command, context);
  command->callback([options, &context] {
    context.action = [options, &context] { return runExplain(*options, context); };
  });
}

} // namespace kvopt::cli
