// kvopt rewrite: a model in the form of one target, with its manifest.
#include "driver/rewrite/rewrite.h"
#include "cli/report/rewrite_report.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "cli/support/form_options.h"
#include "cli/support/input_option.h"
#include "cli/support/token_file.h"
#include "driver/forms/form_table.h"
#include "driver/recover.h"
#include "driver/variants.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;
using namespace ir;

namespace {

struct RewriteOptions {
  std::string model;
  RewriteRequest request;
  RewrittenPaths paths;
  std::vector<std::string> inputs; ///< recipes for what the driver does not know
  TokenFiles calibration;
  FormWords words;
  /// The engine of a command that does not choose one; null for others.
  const char* defaultEngine = nullptr;
  std::string capacity = "dynamic";
  std::string layers; ///< as `0-3,7`; empty: all
  bool dryRun = false;

  /// Whether the form was chosen for the user.
  bool isChosen = false;
  /// Forms that were tried first, and why the model was refused.
  std::vector<std::pair<Form, std::string>> refused;

  std::string target() const { return targetText(request.form); }

  /// The file that is written; empty for none.
  std::string written() const { return dryRun ? "" : paths.model; }
};

/// The first line of the answer where the form was chosen for the user; empty otherwise.
SafeText formLine(const RewriteOptions& options) {
  if (!options.isChosen)
    return {};
  const std::string chosen = optionsOf(options.request.form);
  if (options.refused.empty())
    return formatText("form    {}; see others: kvopt list targets\n", chosen);
  const auto& [form, why] = options.refused.front();
  return formatText("form    {}, because {} is not possible: {}\n", chosen, optionsOf(form), why);
}

/// Says in the JSON which form was chosen for the user, and which others refused the model.
OrderedJson withForm(OrderedJson json, const RewriteOptions& options) {
  if (!options.isChosen)
    return json;
  OrderedJson refused = OrderedJson::array();
  for (const auto& [form, why] : options.refused)
    refused.push_back({{"options", optionsOf(form)}, {"message", why}});
  json["form"] = {{"options", optionsOf(options.request.form)}, {"refused", refused}};
  return json;
}

/// Says on stderr which sites could not be rewritten, `--quiet` only that and the first reason; the
/// JSON report says the same.
ExitCode report(const RefusedModel& refused, const RewriteOptions& options,
                const CommandContext& context) {
  for (const auto& [form, why] : options.refused)
    context.error(formatText("kvopt: {}", why));
  context.error(formatText("kvopt: {}", refused.message));
  for (const RefusedSite& site : refused.sites)
    context.remark(formatText("  {}  {}", site.id(), site.failure.str()));
  if (!refused.sites.empty() && !options.request.addCaches && !options.request.freeExtents)
    context.remark(
        formatText("  see: kvopt explain {} {}", options.model, optionsOf(options.request.form)));
  if (context.common.json())
    printJson(withForm(refusedJson(options.target(), refused), options));
  return ExitCode::Different;
}

llvm::Expected<ExitCode> write(UnchangedModel unchanged, const RewriteOptions& options,
                               WeightFiles weights, const CommandContext& context) {
  nameVariants(unchanged.manifest, options.paths.model);
  if (!options.dryRun)
    if (llvm::Error error = writeFiles(*unchanged.model, unchanged.manifest, options.paths, weights,
                                       context.files()))
      return error;
  const std::string target = options.target();
  if (context.common.json()) {
    printJson(withForm(unchangedJson(options.written(), target, unchanged, weights), options));
    return ExitCode::Done;
  }
  printOut(formLine(options));
  if (unchanged.updatedBy.empty())
    printOut(formatText("{} is in the form of '{}' already\n", options.model, target));
  else
    printOut(formatText("{}: nothing to do: {} updates its caches in place where past and present "
                        "are one buffer\n",
                        options.model, unchanged.updatedBy));
  if (!options.dryRun)
    printOut(formatText("{}wrote it again: {}\n",
                        unchanged.updatedBy.empty()
                            ? SafeText()
                            : drivingNotes(unchanged.manifest, options.paths.manifestPath()),
                        writtenText(unchanged.manifest, options.paths, weights)));
  return ExitCode::Done;
}

llvm::Expected<ExitCode> write(RewrittenModel& rewritten, const RewriteOptions& options,
                               WeightFiles weights, const CommandContext& context) {
  context.detailPasses(rewritten.timings);
  Manifest& manifest = rewritten.manifest;
  if (!manifest.variants.empty() && options.paths.weights == ExternalPlacement::Inline)
    return usageError("the weights of a model in variants are written once, not in each of them")
        .hint("--external-data keep or copy");
  nameFiles(manifest, options.paths, rewritten.firstStep != nullptr);
  if (rewritten.mayBeWritten() && !options.dryRun)
    if (llvm::Error error = writeFiles(*rewritten.model, manifest, options.paths, weights,
                                       context.files(), rewritten.firstStep.get()))
      return error;
  if (context.common.json())
    printJson(
        withForm(rewriteJson(options.written(), options.target(), rewritten, weights), options));
  else
    printOut(formLine(options) + rewriteTable(rewritten, Style(context.common)));
  if (!rewritten.notVerified.empty()) {
    context.error(
        formatText("kvopt: not verified: {}; nothing was written; --input NAME=VALUE says "
                   "what to feed an input, --verify off writes without comparing",
                   rewritten.notVerified));
    return ExitCode::Different;
  }
  if (!rewritten.mayBeWritten()) {
    context.error(rewritten.verification->isDifferent()
                      ? "kvopt: the rewritten model computes something else; nothing was written"
                      : "kvopt: the rewritten model could not be compared; nothing was written");
    return ExitCode::Different;
  }
  if (!options.dryRun && !context.common.json())
    printOut(formatText("{}{}wrote {}\n", engineNote(rewritten.model->graph()),
                        drivingNotes(manifest, options.paths.manifestPath()),
                        writtenText(manifest, options.paths, weights)));
  return context.finish(ExitCode::Done);
}

/// Reads what the options say in words or in files.
llvm::Error readRequest(RewriteOptions& options) {
  RewriteRequest& request = options.request;
  auto capacity = targets::parseCapacity(options.capacity);
  if (!capacity)
    return capacity.takeError();
  request.capacity = *capacity;
  if (!options.layers.empty()) {
    auto layers = targets::parseLayers(options.layers, ',');
    if (!layers)
      return layers.takeError();
    request.layers = std::move(*layers);
  }
  auto recipes = recipesOf(options.inputs);
  if (!recipes)
    return recipes.takeError();
  request.recipes = std::move(*recipes);
  auto calibration = readTokens(options.calibration);
  if (!calibration)
    return calibration.takeError();
  request.calibration = std::move(*calibration);
  return llvm::Error::success();
}

/// The forms to try, in their order.
llvm::Expected<std::vector<Form>> formsOf(const RewriteOptions& options) {
  if (options.defaultEngine) {
    auto form = chooseForm(options.words, options.defaultEngine);
    if (!form)
      return form.takeError();
    return std::vector<Form>{*form};
  }
  auto forms = chooseForms(options.words);
  if (!forms || options.paths.genaiConfig.empty())
    return forms;
  llvm::erase_if(*forms, [](const Form& form) {
    return form.engine != Engine::Ort || form.cache != CacheKind::Buffer;
  });
  if (forms->empty())
    return usageError("--genai-config is for --to ort, whose caches are buffers");
  return forms;
}

llvm::Expected<ExitCode> write(RewriteResult& result, const RewriteOptions& options,
                               WeightFiles weights, const CommandContext& context) {
  if (const auto* refused = std::get_if<RefusedModel>(&result))
    return report(*refused, options, context);
  if (auto* unchanged = std::get_if<UnchangedModel>(&result))
    return write(std::move(*unchanged), options, weights, context);
  return write(std::get<RewrittenModel>(result), options, weights, context);
}

llvm::Expected<ExitCode> rewrite(RewriteOptions& options, const CommandContext& context) {
  auto forms = formsOf(options);
  if (!forms)
    return forms.takeError();
  options.isChosen = options.words.to.empty() && !options.defaultEngine;
  for (const Form& form : *forms) {
    options.request.form = form;
    if (auto target = targetFor(form, context.toolkit.targets); !target)
      return target.takeError();
    auto model = openModel(options.model, context.toolkit);
    if (!model)
      return model.takeError();
    if (!options.dryRun)
      if (llvm::Error error = checkOutputPaths(options.paths, **model, context.files()))
        return error;
    const WeightFiles weights = weightFilesFor(**model, options.paths, options.dryRun);
    if (llvm::Error error = readRequest(options))
      return error;
    auto result = rewrite(std::move(*model), options.request, context.toolkit);
    if (!result)
      return result.takeError();
    const auto* refused = std::get_if<RefusedModel>(&*result);
    if (!refused || form == forms->back())
      return write(*result, options, weights, context);
    options.refused.push_back({form, refused->message});
  }
  llvm_unreachable("the last form returns");
}

/// The options that only `rewrite` has.
void addRewriteOptions(CommandOptions& add, RewriteOptions& options) {
  RewriteRequest& request = options.request;
  add.add("--require", request.require,
          {{"all", LayerRequirement::All}, {"any", LayerRequirement::Any}});
  add.add("--layers", options.layers);
  add.add("--hidden-rows", request.hiddenRows,
          {{"exact", HiddenRows::Exact}, {"undefined", HiddenRows::Undefined}});
  add.add("--padding", request.padding, {{"any", PaddedRows::Any}, {"none", PaddedRows::None}});
  auto* text = add.addInput("--calibration-text", options.calibration.text, "the text");
  add.addInput("--calibration-tokens", options.calibration.numbers, "the tokens")->excludes(text);
  add.add("--calibration-context", request.calibrationContext);
  add.add("--tile-state", request.tileState,
          {{"float32", ElementType::Float}, {"float16", ElementType::Float16}});
  add.add("--one-branch", request.oneBranch);
}

/// The options of commands that write a rewritten model.
void addRewriting(CLI::App* command, Command kind, const std::shared_ptr<RewriteOptions>& options,
                  CommandContext& context) {
  RewriteRequest& request = options->request;
  RewrittenPaths& paths = options->paths;
  request.print = [](const std::string& header, const std::string& text) {
    printErr(formatText("// ----- {} -----\n", header) + text);
  };
  CommandOptions add(*command, context, kind);
  add.add("model", options->model);
  auto* output = add.add("--output", paths.model);
  addFormOptions(add, options->words);
  add.add("--capacity", options->capacity);
  if (kind == Command::Rewrite)
    addRewriteOptions(add, *options);
  add.add("--verify", request.verification,
          {{"off", VerificationExtent::Off},
           {"quick", VerificationExtent::Quick},
           {"full", VerificationExtent::Full}});
  addInputOption(add, options->inputs);
  add.add("--manifest", paths.manifest);
  add.add("--genai-config", paths.genaiConfig);
  add.add("--external-data", paths.weights,
          {{"keep", ExternalPlacement::Keep},
           {"copy", ExternalPlacement::Copy},
           {"inline", ExternalPlacement::Inline}});
  add.add("--print-ir-after", request.printAfter);
  add.add("--disable", request.disabled);
  add.add("--step-budget", request.matcher.stepBudget);
  add.add("--dry-run", options->dryRun);
  add.addCommon();
  command->callback([options, output, &context] {
    if (!options->dryRun && output->count() == 0)
      throw CLI::RequiredError("--output (or --dry-run)");
    context.action = [options, &context] { return rewrite(*options, context); };
  });
}

} // namespace

void addRewriteCommand(CLI::App& app, CommandContext& context) {
  addRewriting(addCommand(app, Command::Rewrite), Command::Rewrite,
               std::make_shared<RewriteOptions>(), context);
}

void addAddCacheCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RewriteOptions>();
  options->request.addCaches = true;
  options->defaultEngine = "primitive";
  addRewriting(addCommand(app, Command::AddCache), Command::AddCache, options, context);
}

void addMakeDynamicCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RewriteOptions>();
  options->request.freeExtents = true;
  options->defaultEngine = "primitive";
  addRewriting(addCommand(app, Command::MakeDynamic), Command::MakeDynamic, options, context);
}

} // namespace kvopt::cli
