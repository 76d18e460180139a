// kvopt rewrite: a model in the form of one target, with its manifest.
#include "driver/rewrite/rewrite.h"
#include "cli/report/rewrite_report.h"
#include "cli/support/command.h"
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

/// An option whose words stand for values.
template <class T>
CLI::Option* addWords(CLI::App& command, const char* name, T& value, const char* description,
                      const std::vector<std::pair<std::string, T>>& words) {
  return command
      .add_option_function<std::string>(
          name,
          [&value, words](const std::string& given) {
            for (const auto& [word, meaning] : words)
              if (word == given)
                value = meaning;
          },
          description)
      ->check(CLI::IsMember([&] {
        std::vector<std::string> names;
        for (const auto& word : words)
          names.push_back(word.first);
        return names;
      }()));
}

/// The options of commands that write a rewritten model.
void addRewriting(CLI::App* command, const std::shared_ptr<RewriteOptions>& options,
                  CommandContext& context) {
  RewriteRequest& request = options->request;
  RewrittenPaths& paths = options->paths;
  request.print = [](const std::string& header, const std::string& text) {
    printErr(formatText("// ----- {} -----\n", header) + text);
  };
  addModelPath(*command, context, "model", options->model, "ONNX file")->required();
  auto* output = addOutputPath(*command, context, "-o,--output", paths.model, "File to write");
  addFormOptions(*command, options->words);
  command->add_option("--capacity", options->capacity, "Rows of a shared buffer, or dynamic");
  if (!request.addCaches && !request.freeExtents) {
    addWords<LayerRequirement>(*command, "--require", request.require, "all sites or none, or any",
                               {{"all", LayerRequirement::All}, {"any", LayerRequirement::Any}});
    command->add_option("--layers", options->layers, "Layers to rewrite, as 0-3,7");
    addWords<HiddenRows>(
        *command, "--hidden-rows", request.hiddenRows,
        "exact; undefined: padding that sees no token may compute anything, so that more "
        "masks become attributes",
        {{"exact", HiddenRows::Exact}, {"undefined", HiddenRows::Undefined}});
    addWords<PaddedRows>(
        *command, "--padding", request.padding,
        "any; none: batch rows are never padded, so that masks hide later keys only, and "
        "lengths that are counted by a mask (GroupQueryAttention) are all the past's",
        {{"any", PaddedRows::Any}, {"none", PaddedRows::None}});
    auto* text =
        addInputPath(*command, context, "--calibration-text", options->calibration.text, "the text",
                     "Text to calibrate the scales of int8 and int4 codes with; its bytes "
                     "are the tokens (byte-level models)");
    addInputPath(*command, context, "--calibration-tokens", options->calibration.numbers,
                 "the tokens",
                 "Like --calibration-text, but token ids separated by white space or commas")
        ->excludes(text);
    command
        ->add_option("--calibration-context", request.calibrationContext,
                     "Calibrate in windows of this many tokens, each from empty caches (512)")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
    addWords<ElementType>(*command, "--tile-state", request.tileState,
                          "For tiles: the element type of what one tile hands to the next, float32 "
                          "or float16",
                          {{"float32", ElementType::Float}, {"float16", ElementType::Float16}});
    command->add_flag("--one-branch", request.oneBranch,
                      "Of a decoder with a branch for its first step, take the other branch for "
                      "all steps; --verify compares both");
  }
  addWords<VerificationExtent>(*command, "--verify", request.verification, "off, quick or full",
                               {{"off", VerificationExtent::Off},
                                {"quick", VerificationExtent::Quick},
                                {"full", VerificationExtent::Full}});
  addInputOption(*command, options->inputs);
  addOutputPath(*command, context, "--manifest", paths.manifest, "Where the manifest goes");
  addOutputPath(*command, context, "--genai-config", paths.genaiConfig,
                "For ort-gqa: where ONNX Runtime GenAI's configuration goes");
  addWords<ExternalPlacement>(
      *command, "--external-data", paths.weights,
      "Weights in files beside the model: keep them there, copy them beside the output, or inline "
      "them",
      {{"keep", ExternalPlacement::Keep},
       {"copy", ExternalPlacement::Copy},
       {"inline", ExternalPlacement::Inline}});
  command->add_option("--print-ir-after", request.printAfter, "A pass, or all");
  command->add_option("--disable", request.disabled, "A rule or pass to leave out");
  command->add_option("--step-budget", request.matcher.stepBudget,
                      "Places that the matcher tries at one root before it gives up");
  command->add_flag("--dry-run", options->dryRun, "Write nothing");
  addCommonOptions(*command, context);
  command->callback([options, output, &context] {
    if (!options->dryRun && output->count() == 0)
      throw CLI::RequiredError("--output (or --dry-run)");
    context.action = [options, &context] { return rewrite(*options, context); };
  });
}

} // namespace

void addRewriteCommand(CLI::App& app, CommandContext& context) {
  addRewriting(app.add_subcommand("rewrite", "Write a model in the form of one target"),
               std::make_shared<RewriteOptions>(), context);
}

void addAddCacheCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RewriteOptions>();
  options->request.addCaches = true;
  options->defaultEngine = "primitive";
  addRewriting(app.add_subcommand("add-cache", "Give caches to a decoder that has none"), options,
               context);
}

void addMakeDynamicCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RewriteOptions>();
  options->request.freeExtents = true;
  options->defaultEngine = "primitive";
  addRewriting(app.add_subcommand("make-dynamic",
                                  "Give symbols to the batch, sequence and past of a fixed export"),
               options, context);
}

} // namespace kvopt::cli
