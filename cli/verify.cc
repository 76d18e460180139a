// kvopt verify: two models step by step, or one model against recorded outputs.
#include "cli/report/data_set_report.h"
#include "cli/report/reference_report.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "cli/support/style.h"
#include "driver/forms/form_table.h"
#include "driver/options/token_file.h"
#include "driver/verify/data_sets.h"
#include "driver/verify/references.h"
#include "driver/verify/report.h"
#include "driver/verify/verify_words.h"
#include "ir/onnx/model_files.h"
#include "runtime/equivalence/data_sets.h"
#include "runtime/equivalence/quantized_groups.h"
#include "runtime/equivalence/quantized_model.h"
#include "runtime/equivalence/reference.h"
#include "support/diagnostic.h"
#include "support/file_access.h"
#include "support/format.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

struct VerifyOptions {
  std::vector<std::string> models;
  std::string reference;
  bool references = false;
  std::vector<std::string> forms = {"exported", "shared", "stateful"};
  VerifyWords words;
  std::string textFile;
  std::string tokenFile;
  int64_t context = 512;
  std::string target = "kvopt";
};

llvm::Expected<VerificationReport> againstReference(const VerifyOptions& options,
                                                    const PreparedModel& prepared,
                                                    const CommandContext& context) {
  const Toolkit& toolkit = context.toolkit;
  auto steps = readReference(options.reference);
  if (!steps)
    return steps.takeError();
  VerificationReport report;
  // The tolerance of recorded outputs is absolute.
  report.tolerance = {
      options.words.atol.value_or(toleranceFor(prepared.model->graph(), 1).absolute),
      options.words.rtol.value_or(0.0)};
  if (isDrivenOtherwise(prepared.model->graph(), prepared.manifest, *steps)) {
    context.remark("kvopt: the recording has steps of its own: each is run with all that was "
                   "recorded for it, caches too");
    auto compared =
        runAsRecorded(prepared, *steps, report.tolerance, options.words.threads, toolkit);
    if (!compared)
      return withFile(compared.takeError(), options.reference);
    report.comparison = std::move(*compared);
    return report;
  }
  auto settings = referenceSession(prepared.manifest, *steps, options.words.threads);
  if (!settings)
    return withFile(settings.takeError(), options.reference);
  auto session = Session::create(*prepared.model, toolkit.kernels, prepared.manifest, *settings);
  if (!session)
    return session.takeError();
  auto comparison = replayReference(**session, *steps, report.tolerance);
  if (!comparison)
    return withFile(comparison.takeError(), options.reference);
  const bool hasConstantScales =
      prepared.manifest.target == "ort-gqa" && groupCodeBits(*prepared.model) != 0;
  if ((hasQuantizedCaches(prepared.manifest) || hasConstantScales) && !options.words.atol)
    context.remark("kvopt: rows of the caches are rounded to codes, recordings are not: the usual "
                   "tolerance shows how far off that is; --atol says what may be");
  report.comparison = std::move(*comparison);
  report.cacheBytesWritten = (*session)->statistics().cacheBytesWritten;
  report.cacheBytesCopied = (*session)->statistics().inPlaceBytesCopied;
  return report;
}

/// Verifies a model, which need not be a decoder, against data sets in ONNX's own format.
llvm::Expected<ExitCode> againstDataSets(const VerifyOptions& options,
                                         const CommandContext& context) {
  auto report =
      verifyDataSets(options.models[0], options.reference, {options.words.atol, options.words.rtol},
                     options.words.threads, context.toolkit);
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
              pathBeside(model, recorded), fmt::format("the recordings of the model '{}'", model)))
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

llvm::Error measureText(const VerifyOptions& options, std::vector<int64_t> tokens,
                        const PreparedModel& a, const PreparedModel& b,
                        const CommandContext& context, VerificationReport& report) {
  TextPlan plan;
  plan.tokens = std::move(tokens);
  plan.context = options.context;
  auto recipes = parseInputRecipes(options.words.inputs);
  if (!recipes)
    return recipes.takeError();
  plan.recipes = std::move(*recipes);
  auto likelihood = compareLikelihoods(*a.model, a.manifest, *b.model, b.manifest, plan,
                                       options.words.threads, context.toolkit);
  if (!likelihood)
    return withFile(likelihood.takeError(),
                    options.textFile.empty() ? options.tokenFile : options.textFile);
  report.likelihood = *likelihood;
  return llvm::Error::success();
}

llvm::Expected<ExitCode> verify(const VerifyOptions& options, const CommandContext& context) {
  if (options.references)
    return againstReferences(options, context);
  if (options.models.size() + (options.reference.empty() ? 0 : 1) != 2)
    return usageError("verify takes two models, a model and --reference PATH, or models and "
                      "--references");
  if (!options.reference.empty() && holdsDataSets(options.reference))
    return againstDataSets(options, context);
  auto first = prepareModel(options.models[0], context.toolkit);
  if (!first)
    return first.takeError();
  llvm::Expected<VerificationReport> report = usageError("nothing to compare");
  llvm::consumeError(report.takeError());
  if (!options.reference.empty()) {
    report = againstReference(options, *first, context);
  } else {
    auto second = prepareModel(options.models[1], context.toolkit);
    if (!second)
      return second.takeError();
    auto plan = options.words.planFor(*first, *second);
    if (!plan)
      return plan.takeError();
    auto tokens = readTokens({options.textFile, options.tokenFile});
    if (!tokens)
      return tokens.takeError();
    report = verifyPrepared(*first, *second, *plan, options.words.threads, context.toolkit);
    if (report && !tokens->empty())
      if (llvm::Error error =
              measureText(options, std::move(*tokens), *first, *second, context, *report))
        return error;
  }
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
  auto* one = add.addInput("--reference", options->reference, "the recording");
  auto* all = add.add("--references", options->references)->excludes(one);
  add.add("--forms", options->forms)->needs(all);
  add.add("--to", options->target)->needs(all);
  addVerifyOptions(add, options->words);
  auto* text = add.addInput("--text-file", options->textFile, "the text");
  auto* tokens = add.addInput("--token-file", options->tokenFile, "the tokens")->excludes(text);
  add.add("--context", options->context);
  text->excludes(one)->excludes(all);
  tokens->excludes(one)->excludes(all);
  // A recording is replayed as it is, so options for runs do not apply.
  for (const char* name :
       {"--prompt", "--chunks", "--steps", "--batch", "--pad", "--depth", "--input"})
    command->get_option(name)->excludes(one)->excludes(all);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return verify(*options, context); };
  });
}

} // namespace kvopt::cli
