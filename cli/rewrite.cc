// kvopt rewrite: a model in the form of one target, with its manifest.
#include "cli/recover.h"
#include "cli/rewrite_proof.h"
#include "cli/rewritten_files.h"
#include "cli/site_facts.h"
#include "cli/style.h"
#include "cli/variant_files.h"
#include "cli/verification.h"
#include "ir/format.h"
#include "ir/onnx_import.h"
#include "ir/text_printer.h"

#include "llvm/ADT/STLExtras.h"

#include <CLI/CLI.hpp>

#include <chrono>

namespace kvopt {
namespace {

std::string pipelineFor(const RewriteOptions& options) {
  PipelineStep lower;
  lower.pass = "lower";
  lower.options = {
      {"to", options.target}, {"capacity", options.capacity}, {"require", options.require}};
  std::string layers = options.layers;
  std::replace(layers.begin(), layers.end(), ',', '+');
  if (!layers.empty())
    lower.options["layers"] = layers;
  return "restore-caches," + std::string(recoveryPipeline) + "," + printPipeline({lower}) +
         ",eliminate-dead-nodes";
}

/// Says on stderr which sites could not be rewritten, `--quiet` only that and the first reason; the
/// JSON report says the same.
ExitCode refused(const RewriteOptions& options, const CommandContext& context,
                 const SiteList& sites, const std::string& message) {
  context.error(formatText("kvopt: {}", message));
  OrderedJson reasons = OrderedJson::array();
  for (const AttentionSite& site : sites) {
    if (site.isMatched())
      continue;
    context.remark(formatText("  {}  {}", site.id(), site.failure->str()));
    OrderedJson reason = {{"id", site.id()}, {"layer", site.layer}};
    reason.update(reasonJson(*site.failure));
    reasons.push_back(std::move(reason));
  }
  if (!reasons.empty())
    context.remark(formatText("  see: kvopt explain {} --to {}", options.model, options.target));
  if (context.common.json())
    printJson({{"schema", "kvopt/rewrite/1"},
               {"output", nullptr},
               {"target", options.target},
               {"sites", {{"rewritten", 0}, {"total", sites.size()}}},
               {"message", message},
               {"refused", reasons}});
  return ExitCode::Different;
}

/// The roots of attention that was raised and then not lowered.
llvm::StringSet<> sitesToLeaveAlone(const PassContext& passes) {
  llvm::StringMap<std::string> roots = raisedRoots(passes.journal, [&](llvm::StringRef name) {
    const RuleRegistry::Entry* entry = passes.rules.find(name);
    return entry && entry->rule->group() == RuleGroup::Raise;
  });
  llvm::StringSet<> names;
  for (const AttentionSite& site : passes.sites)
    if (site.node->op() == OpName("ai.kvopt::Sdpa") &&
        !llvm::is_contained(passes.lowered, site.layer))
      if (std::string root = roots.lookup(site.node->name()); !root.empty())
        names.insert(root);
  return names;
}

/// Sites that are not rewritten keep the spelling they came in. Where there are any, makes `passes`
/// ready for a run without them, on the model as it was read, and returns true.
bool restartWithoutOthers(PassContext& passes) {
  llvm::StringSet<> others = sitesToLeaveAlone(passes);
  if (others.empty() || !passes.manifest)
    return false;
  passes.restart();
  passes.leftAlone = std::move(others);
  return true;
}

/// Whether the manifest says that this command wrote the whole model for the same target, with room
/// for as many tokens.
bool isWritten(const Model& model, const Manifest& manifest, const TargetChoice& target,
               const RewriteOptions& options) {
  if (manifest.target != target.target->name() || !options.layers.empty() ||
      model.findMetadata(partialKey) ||
      (manifest.blockSize != 0 && manifest.blockSize != target.blockSize))
    return false;
  const std::string room =
      manifest.capacityValue ? std::to_string(*manifest.capacityValue) : "dynamic";
  return !manifest.ownsCaches() || options.capacity == room;
}

/// Writes the model as it is.
llvm::Expected<ExitCode> writeAgain(const RewriteOptions& options, const CommandContext& context,
                                    Model& model, Manifest manifest, RewriteOutcome& outcome) {
  nameVariants(manifest, options.output);
  if (!options.dryRun)
    if (llvm::Error error = writeFiles(model, manifest, options, outcome))
      return error;
  if (context.common.json()) {
    printJson(sameModelJson(options.written(), options.target, outcome));
    return ExitCode::Done;
  }
  printOut(formatText("{} is in the form of '{}' already\n", options.model, options.target));
  if (!options.dryRun)
    printOut(formatText("wrote it again: {}\n", writtenText(manifest, options, outcome)));
  return ExitCode::Done;
}

/// Compares with the model as it was read, unless that is off.
llvm::Error verify(const Model& model, const Manifest& manifest, const RewriteOptions& options,
                   const Registries& registries, RewriteOutcome& outcome) {
  if (options.verify == "off")
    return llvm::Error::success();
  VerificationPlan plan =
      options.verify == "full" ? fullVerification() : VerificationPlan(quickVerification());
  plan.setTolerance(toleranceFor(model.graph(), 2));
  auto recipes = recipesOf(options.inputs);
  if (!recipes)
    return recipes.takeError();
  plan.setRecipes(*recipes);
  auto report = verifyRewrite(options.model, model, manifest, plan, registries);
  if (!report)
    return llvm::handleErrors(report.takeError(), [&](const OriginalRefusal& refusal) {
      outcome.notVerified =
          fmt::format("the model as it was read takes no step: {}", refusal.diagnostic().str());
    });
  outcome.verification = std::move(*report);
  return llvm::Error::success();
}

llvm::Expected<ExitCode> rewrite(const RewriteOptions& options, const CommandContext& context) {
  const Registries& registries = context.registries;
  auto start = std::chrono::steady_clock::now();
  auto model = openModel(options.model, registries);
  if (!model)
    return model.takeError();
  if (!options.genaiConfig.empty() && options.target != "ort-gqa")
    return usageError("--genai-config is for --to ort-gqa");
  if (!options.dryRun)
    if (llvm::Error error = checkOutputPaths(options, **model))
      return error;
  auto target = registries.targets.choose(options.target);
  if (!target)
    return target.takeError();
  RewriteOutcome outcome;
  outcome.before = countOps((*model)->graph());
  outcome.opsetBefore = (*model)->graph().opsetVersion();
  outcome.irBefore = (*model)->irVersion;
  noteExternalData(**model, options, outcome);
  auto written = manifestOf(**model);
  if (!written)
    return withFile(written.takeError(), options.model);
  if (*written && isWritten(**model, **written, *target, options)) {
    if (llvm::Error error = proveRewritten(options.model, **written, registries))
      return error;
    return writeAgain(options, context, **model, **written, outcome);
  }
  const bool isRestored = *written && (*written)->ownsCaches();
  if (isRestored && !options.layers.empty())
    return refused(options, context, {},
                   fmt::format("{} was rewritten before, for '{}': --layers is for models as they "
                               "were exported",
                               options.model, (*written)->target));

  PassContext passes(registries.rules, registries.targets);
  NearMissList misses = listenToRaising(registries);
  passes.nearMisses = &misses;
  passes.matcher = options.matcher;
  PassManagerOptions settings;
  settings.printAfter = options.printAfter;
  settings.print = [](const std::string& header, const std::string& text) {
    printErr(formatText("// ----- {} -----\n", header) + text);
  };
  if (llvm::Error error = disable(options.disabled, registries, passes, settings))
    return error;
  PassManager manager(registries.passes, settings);
  if (llvm::Error error = manager.addPipeline(pipelineFor(options)))
    return error;
  llvm::Error lowered = manager.run(**model, passes);
  if (!lowered && restartWithoutOthers(passes)) {
    if (model = openModel(options.model, registries); !model)
      return model.takeError();
    lowered = manager.run(**model, passes);
  }
  if (lowered) {
    const bool isRefusal = passes.statistics["lower"]["refused"] != 0 ||
                           (isRestored && passes.statistics["restore-caches"]["models"] == 0);
    if (!isRefusal)
      return withFile(std::move(lowered), options.model);
    return refused(options, context, passes.sites, takeDiagnostic(std::move(lowered)).message);
  }
  // Attention that was restored has no spelling to stay in.
  if (!passes.manifest || (isRestored && passes.lowered.size() < passes.sites.size()))
    return refused(options, context, passes.sites,
                   fmt::format("{}: nothing to rewrite", options.model));
  if (isRestored)
    passes.exportedCaches = (*written)->caches;
  context.detailPasses(manager.timings());
  outcome.after = countOps((*model)->graph());
  outcome.opsetAfter = (*model)->graph().opsetVersion();
  outcome.irAfter = (*model)->irVersion;
  if (!passes.manifest->variants.empty() && options.externalData == "inline")
    return usageError("the weights of a model in variants are written once, not in each of them")
        .hint("--external-data keep or copy");
  std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  outcome.milliseconds = elapsed.count();

  // What does not compute the same is never written.
  if (llvm::Error error = verify(**model, *passes.manifest, options, registries, outcome))
    return error;
  bool equal = !outcome.verification || outcome.verification->equal();
  nameVariants(*passes.manifest, options.output);
  if (equal && !options.dryRun)
    if (llvm::Error error = writeFiles(**model, *passes.manifest, options, outcome))
      return error;
  if (context.common.json())
    printJson(rewriteJson(options.written(), options.target, passes, outcome));
  else
    printOut(rewriteTable(passes, outcome, Style(context.common)));
  if (!equal) {
    context.error("kvopt: the rewritten model computes something else; nothing was written");
    return ExitCode::Different;
  }
  if (!outcome.notVerified.empty())
    context.remark(
        formatText("kvopt: not verified: {}; --input NAME=VALUE says what to feed an input",
                   outcome.notVerified));
  if (!options.dryRun && !context.common.json())
    printOut(formatText("{}wrote {}\n", drivingNotes(*passes.manifest, manifestPathFor(options)),
                        writtenText(*passes.manifest, options, outcome)));
  return context.finish(ExitCode::Done);
}

} // namespace

void addRewriteCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RewriteOptions>();
  CLI::App* command = app.add_subcommand("rewrite", "Write a model in the form of one target");
  command->add_option("model", options->model, "ONNX file")->required();
  auto* output = command->add_option("-o,--output", options->output, "File to write");
  command->add_option("--to", options->target, "Target, see: kvopt list targets")->required();
  command->add_option("--capacity", options->capacity, "Rows of a shared buffer, or dynamic");
  command->add_option("--require", options->require, "all sites or none, or any")
      ->check(CLI::IsMember({"all", "any"}));
  command->add_option("--layers", options->layers, "Layers to rewrite, as 0-3,7");
  command->add_option("--verify", options->verify, "off, quick or full")
      ->check(CLI::IsMember({"off", "quick", "full"}));
  addInputOption(*command, options->inputs);
  command->add_option("--manifest", options->manifest, "Where the manifest goes");
  command->add_option("--genai-config", options->genaiConfig,
                      "For ort-gqa: where ONNX Runtime GenAI's configuration goes");
  command
      ->add_option("--external-data", options->externalData,
                   "Weights in files beside the model: keep them there, copy them beside the "
                   "output, or inline them")
      ->check(CLI::IsMember({"keep", "copy", "inline"}));
  command->add_option("--print-ir-after", options->printAfter, "A pass, or all");
  command->add_option("--disable", options->disabled, "A rule or pass to leave out");
  command->add_option("--step-budget", options->matcher.stepBudget,
                      "Places that the matcher tries at one root before it gives up");
  command->add_flag("--dry-run", options->dryRun, "Write nothing");
  addCommonOptions(*command, context);
  command->callback([options, output, &context] {
    if (!options->dryRun && output->count() == 0)
      throw CLI::RequiredError("--output (or --dry-run)");
    context.action = [options, &context] { return rewrite(*options, context); };
  });
}

} // namespace kvopt
