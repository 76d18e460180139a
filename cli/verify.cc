// kvopt verify: two models step by step, or one model against recorded outputs.
#include "cli/recover.h"
#include "cli/verification.h"
#include "ir/onnx_import.h"
#include "ir/shape_inference.h"
#include "runtime/reference.h"

#include <CLI/CLI.hpp>

namespace kvopt {
namespace {

struct VerifyOptions {
  std::string a;
  std::string b;
  std::string reference;
  EquivalencePlan plan;
  std::string padding = "none";
  std::optional<double> atol;
  std::optional<double> rtol;
  unsigned threads = 1;

  Tolerance tolerance(const Graph& graph) const {
    Tolerance usual = toleranceFor(graph, 2);
    return {atol.value_or(usual.absolute), rtol.value_or(atol ? 0.0 : usual.relative)};
  }
};

struct PreparedModel {
  std::unique_ptr<Model> model;
  Manifest manifest;
};

llvm::Expected<PreparedModel> prepare(const std::string& path, const Registries& registries) {
  PreparedModel prepared;
  auto model = importModel(path, registries.ops);
  if (!model)
    return model.takeError();
  prepared.model = std::move(*model);
  if (llvm::Error error = inferShapes(prepared.model->graph()))
    return withFile(std::move(error), path);
  auto manifest = drivingManifest(*prepared.model, path, registries);
  if (!manifest)
    return manifest.takeError();
  prepared.manifest = std::move(*manifest);
  return prepared;
}

llvm::Expected<VerificationReport> againstReference(const VerifyOptions& options,
                                                    const PreparedModel& prepared,
                                                    const Registries& registries) {
  auto steps = readReference(options.reference);
  if (!steps)
    return steps.takeError();
  auto batch = referenceBatch(*steps);
  if (!batch)
    return withFile(batch.takeError(), options.reference);
  SessionOptions settings;
  settings.batch = *batch;
  settings.threads = options.threads;
  settings.poison = true;
  if (!prepared.manifest.capacityValue)
    settings.capacity = referenceLength(*steps);
  // Presents of a static capacity were recorded whole.
  for (const ManifestCache& cache : prepared.manifest.caches)
    if (cache.policy == CachePolicy::Static && cache.kind != CacheKind::Cross)
      if (auto recorded = referenceExtent(*steps, cache.past, cache.sequenceAxis))
        settings.capacity = *recorded;
  auto session = Session::create(*prepared.model, registries.kernels, prepared.manifest, settings);
  if (!session)
    return session.takeError();
  VerificationReport report;
  // Recorded outputs are compared absolutely: that is how their tolerance is stated.
  report.tolerance = {options.atol.value_or(toleranceFor(prepared.model->graph(), 1).absolute),
                      options.rtol.value_or(0.0)};
  auto comparison = replayReference(**session, *steps, report.tolerance);
  if (!comparison)
    return withFile(comparison.takeError(), options.reference);
  report.comparison = std::move(*comparison);
  report.second = (*session)->statistics();
  return report;
}

llvm::Expected<ExitCode> verify(const VerifyOptions& options, const CommandContext& context) {
  if (options.b.empty() == options.reference.empty())
    return usageError("verify takes a second model or --reference DIR");
  auto first = prepare(options.a, context.registries);
  if (!first)
    return first.takeError();
  llvm::Expected<VerificationReport> report = usageError("nothing to compare");
  llvm::consumeError(report.takeError());
  if (!options.reference.empty()) {
    report = againstReference(options, *first, context.registries);
  } else {
    auto second = prepare(options.b, context.registries);
    if (!second)
      return second.takeError();
    EquivalencePlan plan = options.plan;
    plan.tolerance = options.tolerance(first->model->graph());
    plan.padding = options.padding == "left"    ? Padding::Left
                   : options.padding == "right" ? Padding::Right
                                                : Padding::None;
    report = verifyModels(*first->model, first->manifest, *second->model, second->manifest, plan,
                          options.threads, context.registries);
  }
  if (!report)
    return withFile(report.takeError(), options.a);
  if (context.common.json())
    printJson(verificationJson(*report));
  else
    printOut(verificationSummary(*report) + "\n");
  return report->equal() ? ExitCode::Done : ExitCode::Different;
}

} // namespace

void addVerifyCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command =
      app.add_subcommand("verify", "Compare two models, or one with recorded outputs, by running");
  command->add_option("a", options->a, "ONNX file")->required();
  command->add_option("b", options->b, "The other ONNX file");
  command->add_option("--reference", options->reference, "Folder of recorded steps");
  auto positive = CLI::Range(int64_t{1}, int64_t{1} << 32);
  command->add_option("--prompt", options->plan.prompt, "Tokens of the prefill")->check(positive);
  command->add_option("--chunks", options->plan.chunks, "Tokens of later chunks")
      ->delimiter(',')
      ->check(positive);
  command->add_option("--steps", options->plan.decodeSteps, "Single-token steps")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32));
  command->add_option("--batch", options->plan.batch, "Batch size")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_option("--pad", options->padding, "left, right or none")
      ->check(CLI::IsMember({"left", "right", "none"}));
  command->add_option("--atol", options->atol,
                      "Absolute tolerance; 1e-4, or 2e-2 (float16) and 1e-1 (bfloat16)");
  command->add_option("--rtol", options->rtol, "Relative tolerance");
  command->add_option("--seed", options->plan.seed, "Seed of the random tokens");
  command->add_option("-t,--threads", options->threads, "Threads")->check(CLI::Range(1u, 1024u));
  addCommonOptions(*command, context);
  command->callback([options, &context] {
    context.action = [options, &context] { return verify(*options, context); };
  });
}

} // namespace kvopt
