// kvopt verify: two models step by step, or one model against recorded outputs.
#include "cli/running/data_set_report.h"
#include "cli/running/reference_report.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "cli/support/style.h"
#include "driver/forms/form_table.h"
#include "driver/verify/data_sets.h"
#include "driver/verify/references.h"
#include "driver/verify/report.h"
#include "driver/verify/verify_request.h"
#include "ir/onnx/model_files.h"
#include "runtime/equivalence/data_sets.h"
#include "support/diagnostic.h"
#include "support/file_access.h"
#include "support/format.h"
#include "support/json.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

struct VerifyOptions {
  std::vector<std::string> models;
  bool references = false;
  std::vector<std::string> forms = {"exported", "shared", "stateful"};
  VerifyWords words;
  std::string target = "kvopt";
};

/// Verifies a model, which need not be a decoder, against data sets in ONNX's own format.
llvm::Expected<ExitCode> againstDataSets(const VerifyOptions& options,
                                         const CommandContext& context) {
  auto report = verifyDataSets(options.models[0], options.words.reference,
                               {options.words.atol, options.words.rtol}, options.words.threads,
                               context.toolkit);
  if (!report)
    return report.takeError();
  if (context.common.json())
    printJson(dataSetJson(*report));
  else
    printOut(dataSetSummary(*report) + "\n");
  return report->equal() ? ExitCode::Done : ExitCode::Different;
}

llvm::Expected<ExitCode> againstReferences(const VerifyOptions& options,
                                           const CommandContext& context) {
  std::vector<ModelForm> forms;
  for (const std::string& name : options.forms)
    if (std::optional<ModelForm> form = formFromName(name);
        form && !llvm::is_contained(forms, *form))
      forms.push_back(*form);
  for (const std::string& model : options.models)
    for (const char* recorded : {"ref", "model.json"})
      if (llvm::Error error = context.files().reads(
              pathBeside(model, recorded), formatted("the recordings of the model '{}'", model)))
        return error;
  auto form = presetForm(options.target);
  if (!form)
    return form.takeError();
  auto table =
      compareWithReferences(options.models, forms, options.words.threads, context.toolkit, *form);
  if (!table)
    return table.takeError();
  if (context.common.json())
    printJson(referenceTableJson(*table));
  else
    printOut(referenceTableText(*table, forms));
  return table->equal() ? ExitCode::Done : ExitCode::Different;
}

/// The largest difference of a step.
double worstOf(const StepComparison& step) {
  double worst = 0;
  for (const auto* group : {&step.outputs, &step.caches})
    for (const TensorComparison& tensor : *group)
      worst = std::max(worst, tensor.comparison.maxAbs);
  return worst;
}

llvm::Expected<ExitCode> verify(const VerifyOptions& options, const CommandContext& context) {
  if (options.references)
    return againstReferences(options, context);
  const VerifyWords& words = options.words;
  if (llvm::Error error = words.checkModels(options.models.size()))
    return error;
  if (!words.reference.empty() && holdsDataSets(words.reference))
    return againstDataSets(options, context);
  auto recipes = parseInputRecipes(words.inputs, words.states);
  if (!recipes)
    return recipes.takeError();
  const bool isReplayed = !words.reference.empty();
  auto first = isReplayed ? prepareModel(options.models[0], context.toolkit)
                          : prepareTested(options.models[0], context.toolkit, *recipes);
  if (!first)
    return first.takeError();
  if (!first->untested.empty())
    context.remark(formatText("remark: {}", first->untested));
  std::optional<PreparedModel> second;
  if (!isReplayed) {
    auto prepared = prepareTested(options.models[1], context.toolkit, *recipes);
    if (!prepared)
      return prepared.takeError();
    second = std::move(*prepared);
  }
  auto report =
      verify(*first, second ? &*second : nullptr, words, context.toolkit,
             [&](llvm::StringRef sentence) { context.remark(formatText("kvopt: {}", sentence)); });
  if (!report)
    return withFile(report.takeError(), options.models[0]);
  for (const StepComparison& step : report->comparison.steps)
    context.detail(formatText("kvopt: {:<8} {:>4} tokens   max abs {:.1e}", step.phase, step.tokens,
                              worstOf(step)));
  if (context.common.json())
    printJson(verificationJson(*report));
  else
    printOut(Style(context.common)
                 .verdict(verificationSummary(*report, context.common.verbose), report->equal()) +
             "\n");
  return report->equal() ? ExitCode::Done : ExitCode::Different;
}

} // namespace

void addVerifyCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = addCommand(app, Command::Verify);
  CommandOptions add(*command, context, Command::Verify);
  add.add("models", options->models);
  addVerifyOptions(add, options->words);
  addVerifyFiles(add, options->words);
  auto* one = command->get_option("--reference");
  auto* all = add.add("--references", options->references)->excludes(one);
  add.add("--forms", options->forms)->needs(all);
  add.add("--to", options->target)->needs(all);
  auto* text = command->get_option("--text-file");
  auto* tokens = command->get_option("--token-file")->excludes(text);
  text->excludes(one)->excludes(all);
  tokens->excludes(one)->excludes(all);
  // A recording is replayed as it is, so options for runs do not apply.
  for (const char* name :
       {"--prompt", "--chunks", "--steps", "--batch", "--pad", "--depth", "--input", "--state"})
    command->get_option(name)->excludes(one)->excludes(all);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return verify(*options, context); };
  });
}

} // namespace kvopt::cli
