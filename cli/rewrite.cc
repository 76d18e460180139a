// kvopt rewrite: a model in the form of one target, with its manifest.
#include "cli/byte_text.h"
#include "cli/genai_config.h"
#include "cli/recover.h"
#include "cli/rewrite_report.h"
#include "cli/site_facts.h"
#include "cli/variant_files.h"
#include "cli/verification.h"
#include "ir/onnx_export.h"
#include "ir/onnx_import.h"
#include "ir/output_file.h"
#include "ir/text_printer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

#include <CLI/CLI.hpp>

#include <chrono>
#include <filesystem>
#include <fmt/format.h>

namespace kvopt {
namespace {

struct RewriteOptions {
  std::string model;
  std::string output;
  std::string target;
  std::string capacity = "dynamic";
  std::string require = "all";
  std::string layers;
  std::string verify = "quick";
  std::string manifest;
  std::string genaiConfig;
  std::string externalData = "keep";
  std::vector<std::string> printAfter;
  std::vector<std::string> disabled;
  bool dryRun = false;
  MatcherOptions matcher;

  /// The file that is written; empty for none.
  std::string written() const { return dryRun ? "" : output; }
};

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

/// A file that appears when `commit` is called.
llvm::Expected<OutputFile> preparedFile(const std::string& path, const std::string& text) {
  auto file = OutputFile::create(path);
  if (!file)
    return file.takeError();
  if (llvm::Error error = file->write(llvm::StringRef(text)))
    return error;
  return file;
}

std::string manifestPathFor(const RewriteOptions& options) {
  if (!options.manifest.empty())
    return options.manifest;
  llvm::StringRef stem = options.output;
  stem.consume_back(".onnx");
  return stem.str() + ".kv.json";
}

ExportOptions exportOptions(const RewriteOptions& options) {
  ExportOptions exported;
  exported.externalBytes = INT64_MAX; // what passes make stays in the model's file
  exported.placement = options.externalData == "copy"     ? ExternalPlacement::Copy
                       : options.externalData == "inline" ? ExternalPlacement::Inline
                                                          : ExternalPlacement::Keep;
  if (exported.placement == ExternalPlacement::Copy)
    exported.externalFile = std::filesystem::path(options.output).filename().string() + ".data";
  return exported;
}

/// No variant's file may be one that is read, or another one that is written.
llvm::Error checkVariantPaths(const RewriteOptions& options, const Manifest& manifest) {
  for (const std::string& path : variantPaths(manifest, options.output))
    if (sameFile(options.model, path) || path == manifestPathFor(options))
      return usageError("the file is that of a variant").file(path).hint("write to another file");
  return llvm::Error::success();
}

/// Writes the model with its variants, which are made of it.
llvm::Error prepareFamily(Model& model, const RewriteOptions& options, const Manifest& manifest,
                          OutputFiles& files) {
  if (llvm::Error error = checkVariantPaths(options, manifest))
    return error;
  model.setMetadata(manifestKey, manifest.json());
  ExportOptions exported = exportOptions(options);
  exported.externalBytes = ExportOptions().externalBytes;
  return prepareVariants(model, manifest, options.output, std::move(exported), files);
}

/// Writes all files, or none when one of them cannot be written. Variants, which `manifest` names,
/// are made of the model.
llvm::Error writeFiles(Model& model, const RewriteOptions& options, const Manifest& manifest) {
  OutputFiles files;
  if (!manifest.variants.empty()) {
    if (llvm::Error error = prepareFamily(model, options, manifest, files))
      return error;
  } else if (llvm::Error error =
                 prepareExport(model, options.output, exportOptions(options), files)) {
    return error;
  }
  if (!options.genaiConfig.empty()) {
    auto config =
        genaiConfig(model, manifest, std::filesystem::path(options.output).filename().string());
    if (!config)
      return config.takeError();
    auto prepared = preparedFile(options.genaiConfig, *config + "\n");
    if (!prepared)
      return prepared.takeError();
    files.add(std::move(*prepared));
  }
  auto file = preparedFile(manifestPathFor(options), manifest.json() + "\n");
  if (!file)
    return file.takeError();
  files.add(std::move(*file));
  return files.commit();
}

/// No file that is written may be one that is read, or another one that is written.
llvm::Error checkPaths(const RewriteOptions& options, const Model& model) {
  const std::string manifestPath = manifestPathFor(options);
  if (sameFile(options.model, options.output))
    return usageError("the output is the input").hint("write to another file");
  if (sameFile(options.model, manifestPath) || options.output == manifestPath)
    return usageError("the manifest's file is the model's").hint("write it to another file");
  if (sameFile(options.model, options.genaiConfig) || options.genaiConfig == options.output ||
      options.genaiConfig == manifestPath)
    return usageError("the file of --genai-config is another one's").hint("write to another file");
  const ExportOptions exported = exportOptions(options);
  for (const std::string& path : {manifestPath, options.genaiConfig}) {
    if (path.empty())
      continue;
    if (!exported.externalFile.empty() && path == options.output + ".data")
      return usageError("the file is that of the external data").file(path);
    for (const std::string& data : externalFilesOf(model))
      if (sameFile(path, data))
        return usageError("this is the model's external data").file(path);
  }
  return checkExport(model, options.output, exported);
}

void noteExternalData(const RewriteOptions& options, const Model& model, RewriteOutcome& outcome) {
  const std::vector<std::string> files = externalFilesOf(model);
  if (files.empty())
    return;
  outcome.externalPlacement = options.externalData;
  if (options.externalData == "keep")
    outcome.externalFiles = files;
  else if (options.externalData == "copy" && !options.dryRun)
    outcome.externalFiles = {options.output + ".data"};
}

/// Large constants of a model with variants are in one file, wherever they were.
void noteVariantData(const RewriteOptions& options, const Manifest& manifest,
                     RewriteOutcome& outcome) {
  const std::string data = options.output + ".data";
  if (manifest.variants.empty() || !outcome.externalFiles.empty() || !std::filesystem::exists(data))
    return;
  outcome.externalPlacement = "copy";
  outcome.externalFiles = {data};
}

/// `, variants …` where there are any.
std::string variantsText(const RewriteOptions& options, const Manifest& manifest) {
  const std::vector<std::string> paths = variantPaths(manifest, options.output);
  if (paths.empty())
    return "";
  if (paths.size() == 1)
    return ", its variant " + paths.front();
  return fmt::format(", its variants {} to {}", paths.front(), paths.back());
}

/// ` (3.1 MiB, weights stay in decoder.onnx.data)` of the file that was written.
std::string writtenText(const RewriteOptions& options, const RewriteOutcome& outcome) {
  std::error_code unknown;
  const uintmax_t bytes = std::filesystem::file_size(options.output, unknown);
  std::string text = " (" + (unknown ? "" : byteText(static_cast<int64_t>(bytes)));
  const std::vector<std::string>& files = outcome.externalFiles;
  if (!files.empty())
    text += outcome.externalPlacement == "keep" ? ", weights stay in " : ", weights in ";
  if (files.size() > 1)
    text += fmt::format("{} files", files.size());
  else if (!files.empty())
    text += llvm::sys::path::filename(files[0]).str();
  return text + ")";
}

/// Says which sites could not be rewritten, on stderr; the JSON report says the same.
ExitCode refused(const RewriteOptions& options, const CommandContext& context,
                 const SiteList& sites, const std::string& message) {
  context.remark("kvopt: " + message);
  OrderedJson reasons = OrderedJson::array();
  for (const AttentionSite& site : sites) {
    if (site.isMatched())
      continue;
    context.remark(fmt::format("  {}  {}", site.id(), site.failure->str()));
    OrderedJson reason = {{"id", site.id()}, {"layer", site.layer}};
    reason.update(reasonJson(*site.failure));
    reasons.push_back(std::move(reason));
  }
  if (!reasons.empty())
    context.remark(fmt::format("  see: kvopt explain {} --to {}", options.model, options.target));
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

/// Whether this command wrote the whole model for the same target, with room for as many tokens.
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
  if (!options.dryRun) {
    if (llvm::Error error = writeFiles(model, options, manifest))
      return error;
    noteVariantData(options, manifest, outcome);
  }
  if (context.common.json()) {
    printJson(sameModelJson(options.written(), options.target, outcome));
    return ExitCode::Done;
  }
  printOut(fmt::format("{} is in the form of '{}' already\n", options.model, options.target));
  if (!options.dryRun)
    printOut(fmt::format("wrote {}{}, the same{}, and {}\n", options.output,
                         writtenText(options, outcome), variantsText(options, manifest),
                         manifestPathFor(options)));
  return ExitCode::Done;
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
    if (llvm::Error error = checkPaths(options, **model))
      return error;
  auto target = registries.targets.choose(options.target);
  if (!target)
    return target.takeError();
  RewriteOutcome outcome;
  outcome.before = countOps((*model)->graph());
  outcome.opsetBefore = (*model)->graph().opsetVersion();
  outcome.irBefore = (*model)->irVersion;
  noteExternalData(options, **model, outcome);
  auto written = manifestOf(**model);
  if (!written)
    return withFile(written.takeError(), options.model);
  if (*written && isWritten(**model, **written, *target, options))
    return writeAgain(options, context, **model, **written, outcome);
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
    fmt::print(stderr, "// ----- {} -----\n{}", header, text);
  };
  if (llvm::Error error = disable(options.disabled, registries, passes, settings))
    return error;
  PassManager manager(registries.passes, settings);
  if (llvm::Error error = manager.addPipeline(pipelineFor(options)))
    return error;
  llvm::Error lowered = manager.run(**model, passes);
  // Sites that are not rewritten keep the spelling they came in: recovered anew without them.
  if (llvm::StringSet<> others = lowered ? llvm::StringSet<>() : sitesToLeaveAlone(passes);
      !others.empty() && passes.manifest) {
    if (model = openModel(options.model, registries); !model)
      return model.takeError();
    passes.restart();
    passes.leftAlone = std::move(others);
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
  outcome.after = countOps((*model)->graph());
  outcome.opsetAfter = (*model)->graph().opsetVersion();
  outcome.irAfter = (*model)->irVersion;
  if (!passes.manifest->variants.empty() && options.externalData == "inline")
    return usageError("the weights of a model in variants are written once, not in each of them")
        .hint("--external-data keep or copy");
  std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  outcome.milliseconds = elapsed.count();

  // What does not compute the same is never written.
  if (options.verify != "off") {
    EquivalencePlan plan = options.verify == "full" ? fullVerification() : quickVerification();
    plan.tolerance = toleranceFor((*model)->graph(), 2);
    auto report = verifyRewrite(options.model, **model, *passes.manifest, plan, registries);
    if (!report)
      return report.takeError();
    outcome.verification = std::move(*report);
  }
  bool equal = !outcome.verification || outcome.verification->equal();
  nameVariants(*passes.manifest, options.output);
  if (equal && !options.dryRun) {
    if (llvm::Error error = writeFiles(**model, options, *passes.manifest))
      return error;
    noteVariantData(options, *passes.manifest, outcome);
  }
  if (context.common.json())
    printJson(rewriteJson(options.written(), options.target, passes, outcome));
  else
    printOut(rewriteTable(passes, outcome));
  if (!equal) {
    context.remark("kvopt: the rewritten model computes something else; nothing was written");
    return ExitCode::Different;
  }
  if (!options.dryRun && !context.common.json())
    printOut(fmt::format("{}wrote {}{}{} and {}\n",
                         drivingNotes(*passes.manifest, manifestPathFor(options)), options.output,
                         writtenText(options, outcome), variantsText(options, *passes.manifest),
                         manifestPathFor(options)));
  return ExitCode::Done;
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
