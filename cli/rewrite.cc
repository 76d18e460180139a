// kvopt rewrite, add-cache and make-dynamic: write a model in a form, with its manifest.
#include "cli/report/rewrite_answer.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite_forms.h"
#include "driver/rewrite/rewrite_json.h"
#include "driver/rewrite/rewrite_words.h"
#include "driver/variants.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/json.h"

#include "llvm/ADT/STLExtras.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;
using namespace ir;

namespace {

struct RewriteOptions {
  explicit RewriteOptions(Command kind) : command(kind) { setCommand(words, kind); }

  Command command;
  std::string model;
  RewriteWords words;
  RewrittenPaths paths;
  bool dryRun = false;

  /// Whether kvopt chose the form.
  bool isChosen = false;
  /// Forms that were tried first, and the reasons that they refused the model.
  std::vector<std::pair<Form, std::string>> refused;

  std::string target() const { return targetText(words.request.form); }

  /// The path of the written model; empty if none is written.
  std::string written() const { return dryRun ? "" : paths.model; }
};

AnswerRequest answerRequest(const RewriteOptions& options, const CommandContext& context) {
  AnswerRequest request;
  request.command = options.command;
  request.model = options.model;
  request.form = options.words.request.form;
  request.isChosen = options.isChosen;
  request.refused = options.refused;
  request.paths = options.paths;
  request.isDryRun = options.dryRun;
  request.isVerbose = context.common.verbose;
  request.canRun = context.toolkit.runner != nullptr;
  return request;
}

/// Adds the form that kvopt chose, and the forms that refused the model.
OrderedJson withForm(OrderedJson json, const RewriteOptions& options) {
  if (!options.isChosen)
    return json;
  OrderedJson refused = OrderedJson::array();
  for (const auto& [form, why] : options.refused)
    refused.push_back({{"options", optionsOf(form)}, {"message", why}});
  json["form"] = {{"options", optionsOf(options.words.request.form)}, {"refused", refused}};
  return json;
}

/// Reports the attention layers that could not be rewritten on stderr, and in the JSON. With
/// `--quiet`, only the message, which has the first reason.
ExitCode report(const RefusedModel& refused, const RewriteOptions& options,
                const CommandContext& context) {
  for (const auto& [form, why] : options.refused)
    if (why != refused.message)
      context.error(formatText("kvopt: {} is not possible: {}", optionsOf(form), why));
  context.error(formatText("kvopt: {}", refused.message));
  for (const SafeText& layers : refusedLayers(refused))
    context.remark(layers);
  for (const Remedy& remedy : refused.remedies)
    context.remark(formatText("  {}", remedy.text()));
  if (options.isChosen && refused.withoutCaches) {
    if (!refused.withoutCaches->command.empty())
      context.remark(formatText("next: {}", refused.withoutCaches->command));
  } else if (!refused.sites.empty() && !options.words.request.addCaches &&
             !options.words.request.freeExtents)
    context.remark(formatText("next: kvopt explain {} {}", options.model,
                              optionsOf(options.words.request.form)));
  if (context.common.json())
    printJson(withForm(refusedJson(options.target(), refused), options));
  return ExitCode::Different;
}

llvm::Expected<ExitCode> write(UnchangedModel unchanged, const RewriteOptions& options,
                               WeightFiles weights, const CommandContext& context) {
  nameVariants(unchanged.manifest, options.paths.model);
  if (!options.dryRun)
    if (llvm::Error error = writeFiles(*unchanged.model, unchanged.manifest, options.paths, weights,
                                       context.files(), nullptr, context.toolkit.progress))
      return error;
  if (context.common.json())
    printJson(
        withForm(unchangedJson(options.written(), options.target(), unchanged, weights), options));
  else
    printOut(unchangedAnswer(unchanged, weights, answerRequest(options, context)));
  return ExitCode::Done;
}

llvm::Expected<ExitCode> write(RewrittenModel& rewritten, const RewriteOptions& options,
                               WeightFiles weights, const CommandContext& context) {
  context.detailPasses(rewritten.timings);
  Manifest& manifest = rewritten.manifest;
  if (!manifest.variants.empty() && options.paths.weights == WeightPlacement::Inline)
    return usageError("the weights of a model in variants are written once, not in each of them")
        .hint("--external-data keep or copy");
  nameFiles(manifest, options.paths, rewritten.firstStep != nullptr);
  if (rewritten.mayBeWritten() && !options.dryRun)
    if (llvm::Error error =
            writeFiles(*rewritten.model, manifest, options.paths, weights, context.files(),
                       rewritten.firstStep.get(), context.toolkit.progress))
      return error;
  if (context.common.json())
    printJson(
        withForm(rewriteJson(options.written(), options.target(), rewritten, weights), options));
  else
    printOut(
        rewriteAnswer(rewritten, weights, answerRequest(options, context), Style(context.common)));
  if (!rewritten.notVerified.empty()) {
    context.error(
        formatText("kvopt: not verified: {}; nothing was written; --input NAME=VALUE says "
                   "what to feed an input, --verify off writes without comparing",
                   rewritten.notVerified));
    return ExitCode::Different;
  }
  if (!rewritten.verification && rewritten.isDifferent()) {
    context.error("kvopt: a check finds a difference; nothing was written; --verify quick compares "
                  "by running both models");
    return ExitCode::Different;
  }
  if (!rewritten.contradiction().empty()) {
    context.error("kvopt: a check contradicts the run; nothing was written");
    return ExitCode::Different;
  }
  if (!rewritten.mayBeWritten()) {
    context.error(
        formatText("kvopt: the rewritten model {}; nothing was written{}",
                   rewritten.isDifferent() ? "computes something else" : "could not be compared",
                   context.toolkit.runner ? "" : "; --verify off writes without comparing"));
    return ExitCode::Different;
  }
  return context.finish(ExitCode::Done);
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
  auto forms = formsOf(options.words, options.command, !options.paths.genaiConfig.empty());
  if (!forms)
    return forms.takeError();
  if (llvm::Error error = options.words.read())
    return error;
  options.words.request.computesPastLength = !options.paths.genaiConfig.empty();
  options.isChosen = isFormChosen(options.words, options.command);
  WeightFiles weights;
  auto first = rewriteInFirstForm(
      options.model, options.words.request, *forms, context.toolkit,
      [&](const Model& model) -> llvm::Error {
        if (!options.dryRun)
          if (llvm::Error error = checkOutputPaths(options.paths, model, context.files()))
            return error;
        weights = weightFilesFor(model, options.paths, options.dryRun);
        return llvm::Error::success();
      });
  if (!first)
    return first.takeError();
  options.words.request.form = first->form;
  options.refused = std::move(first->refused);
  return write(first->result, options, weights, context);
}

/// Adds a command that writes a rewritten model.
void addRewriting(CLI::App& app, Command kind, CommandContext& context) {
  auto options = std::make_shared<RewriteOptions>(kind);
  RewriteRequest& request = options->words.request;
  request.print = [](const std::string& header, const std::string& text) {
    printErr(formatText("// ----- {} -----\n", header) + text);
  };
  CLI::App* command = addCommand(app, kind);
  CommandOptions add(*command, context, kind);
  add.add("model", options->model);
  auto* output = add.add("--output", options->paths.model);
  addWritingOptions(add, kind, options->words);
  addFileOptions(add, options->paths);
  add.add("--print-ir-after", request.printAfter);
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
  addRewriting(app, Command::Rewrite, context);
}

void addAddCacheCommand(CLI::App& app, CommandContext& context) {
  addRewriting(app, Command::AddCache, context);
}

void addMakeDynamicCommand(CLI::App& app, CommandContext& context) {
  addRewriting(app, Command::MakeDynamic, context);
}

} // namespace kvopt::cli
