// Running and reporting comparisons.
#include "cli/verification.h"

#include "cli/recover.h"
#include "cli/variant_files.h"
#include "ir/diagnostic.h"
#include "ir/format.h"
#include "ir/onnx_export.h"
#include "ir/onnx_import.h"
#include "ir/shape_inference.h"
#include "runtime/decoder_inputs.h"
#include "runtime/quantized_model.h"
#include "runtime/widened_model.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <cmath>

namespace kvopt {

EquivalencePlan quickVerification() {
  EquivalencePlan plan;
  plan.chunks = {7};
  plan.decodeSteps = 24;
  plan.batch = 1;
  return plan;
}

EquivalencePlan fullVerification() { return EquivalencePlan(); }

namespace {

/// The plan without the tokens that a cache of this capacity has no room for.
EquivalencePlan shortened(EquivalencePlan plan, int64_t capacity) {
  plan.prompt = std::min(plan.prompt, std::max<int64_t>(1, capacity / 2));
  int64_t rest = capacity - plan.prompt;
  // Half of the rest is for decode steps.
  int64_t restOfChunks = rest / 2;
  for (int64_t& chunk : plan.chunks) {
    chunk = std::min(chunk, restOfChunks);
    restOfChunks -= chunk;
    rest -= chunk;
  }
  plan.chunks.erase(std::remove(plan.chunks.begin(), plan.chunks.end(), 0), plan.chunks.end());
  plan.decodeSteps = std::min(plan.decodeSteps, rest / plan.stepTokens);
  return plan;
}

} // namespace

Tolerance toleranceFor(const Graph& graph, int roundings) {
  bool anyHalf = false;
  bool anyBrain = false;
  auto see = [&](const Value& value) {
    anyHalf |= value.type().elementType() == ElementType::Float16;
    anyBrain |= value.type().elementType() == ElementType::BFloat16;
  };
  for (const std::unique_ptr<Value>& input : graph.inputs())
    see(*input);
  for (const Value* output : graph.outputs())
    see(*output);
  for (const std::unique_ptr<Value>& initializer : graph.initializers())
    see(*initializer);
  if (anyBrain)
    return {1e-1 * roundings, 1e-1};
  return anyHalf ? Tolerance{2e-2 * roundings, 2e-2} : Tolerance{1e-4, 1e-4};
}

llvm::Expected<PreparedModel> prepareModel(const std::string& path, const Registries& registries) {
  PreparedModel prepared;
  auto model = openModel(path, registries);
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

namespace {

/// Steps of as many tokens as the token ids, or their embeddings, have by declaration.
void fitTokens(const Value& input, bool isEmbedded, EquivalencePlan& plan) {
  const TensorType& type = input.type();
  const bool hasBatch = type.hasRank() && type.rank() == (isEmbedded ? 3 : 2);
  if (!hasBatch && !(type.hasRank() && type.rank() == 1 && !isEmbedded))
    return;
  plan.batch = hasBatch ? type.dim(0).value().value_or(plan.batch) : 1;
  std::optional<int64_t> tokens = type.dim(hasBatch ? 1 : 0).value();
  if (!tokens || *tokens < 1)
    return;
  plan.decodeSteps = std::max<int64_t>(1, plan.totalTokens() / *tokens) - 1;
  plan.prompt = plan.stepTokens = *tokens;
  plan.chunks.clear();
}

/// The rows that the caches have, whatever they hold, where they grow all the same.
int64_t fixedPastRows(const Manifest& manifest) {
  for (const ManifestCache& cache : manifest.caches)
    if (cache.policy == CachePolicy::Fixed && cache.kind == CacheKind::Self && !cache.oneBuffer)
      if (const auto* fixed =
              std::get_if<int64_t>(&cache.shape[static_cast<size_t>(cache.sequenceAxis)]))
        return *fixed;
  return 0;
}

void fitPast(int64_t rows, EquivalencePlan& plan) {
  if (rows <= 0)
    return;
  plan.pastRows = rows;
  plan.chunks.clear();
  plan.decodeSteps = 0;
  plan.padding = Padding::None;
}

} // namespace

EquivalencePlan fittedPlan(EquivalencePlan plan, const Graph& graph, const Manifest& manifest) {
  for (const Value* tokens : tokenInputs(graph, manifest.inputs))
    fitTokens(*tokens, false, plan);
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->name() == "inputs_embeds")
      fitTokens(*input, true, plan);
  if (manifest.capacityValue)
    plan = shortened(std::move(plan), *manifest.capacityValue);
  for (const ManifestCache& cache : manifest.caches)
    if (cache.policy == CachePolicy::Static && cache.kind != CacheKind::Cross)
      if (const auto* fixed =
              std::get_if<int64_t>(&cache.shape[static_cast<size_t>(cache.sequenceAxis)]))
        plan = shortened(std::move(plan), *fixed);
  // A ring takes no more tokens at a time than it has rows.
  for (const ManifestCache& cache : manifest.caches)
    if (cache.policy == CachePolicy::Ring)
      if (const auto* rows =
              std::get_if<int64_t>(&cache.shape[static_cast<size_t>(cache.sequenceAxis)])) {
        plan.prompt = std::min(plan.prompt, std::max<int64_t>(1, *rows));
        for (int64_t& chunk : plan.chunks)
          chunk = std::min(chunk, std::max<int64_t>(1, *rows));
      }
  fitPast(fixedPastRows(manifest), plan);
  return plan;
}

namespace {

/// Weights of larger twins would not leave memory for the models that are compared.
constexpr int64_t mostTwinElements = int64_t{1} << 28;

/// The model with all numbers in f32, for the budget of its own rounding.
llvm::Expected<PreparedModel> twinOf(const Model& model, const Manifest& manifest,
                                     const Registries& registries) {
  if (!manifest.variants.empty())
    return unsupported("there is no twin of a model in variants");
  int64_t elements = 0;
  for (const std::unique_ptr<Value>& initializer : model.graph().initializers())
    if (initializer->initializer() && byteWidth(initializer->type().elementType()) == 2u)
      elements += std::min(initializer->initializer()->elementCount(), mostTwinElements);
  if (elements > mostTwinElements)
    return unsupported("the twin in f32 would be too large");
  auto copy = cloneModel(model, registries);
  if (!copy)
    return copy.takeError();
  PreparedModel twin;
  twin.model = std::move(*copy);
  twin.manifest = manifest;
  if (llvm::Error error = widen(*twin.model, twin.manifest))
    return error;
  return twin;
}

} // namespace

llvm::Expected<std::unique_ptr<Model>> cloneModel(const Model& model,
                                                  const Registries& registries) {
  auto bytes = exportModelBytes(model);
  if (!bytes)
    return bytes.takeError();
  return importModelBytes(std::as_bytes(std::span<const char>(bytes->data(), bytes->size())),
                          model.folder, registries.ops);
}

llvm::Expected<std::unique_ptr<Session>> openForPlan(const Model& model, const Manifest& manifest,
                                                     const EquivalencePlan& plan, unsigned threads,
                                                     const Registries& registries) {
  SessionOptions options;
  options.batch = plan.batch;
  options.threads = threads;
  options.poison = true;
  options.variants = variantsInMemory(model, manifest);
  if (!manifest.capacityValue)
    options.capacity = plan.pastRows + plan.totalTokens();
  return Session::create(model, registries.kernels, manifest, options);
}

namespace {

/// `quantized` beside `original`, in two halves.
llvm::Expected<VerificationReport>
verifyQuantized(const Model& original, const Manifest& originalManifest, const Model& quantized,
                const Manifest& quantizedManifest, EquivalencePlan plan, unsigned threads,
                const Registries& registries) {
  auto copy = cloneModel(quantized, registries);
  if (!copy)
    return copy.takeError();
  PreparedModel plain;
  plain.model = std::move(*copy);
  plain.manifest = quantizedManifest;
  if (llvm::Error error = inferShapes(plain.model->graph()))
    return error;
  if (llvm::Error error = unquantize(*plain.model, plain.manifest))
    return error;
  auto report = verifyModels(original, originalManifest, *plain.model, plain.manifest, plan,
                             threads, registries);
  if (!report)
    return report;
  plan.batch = report->batch;
  plan.vocabulary = report->vocabulary;
  llvm::SmallVector<int64_t, 16> steps;
  for (const StepComparison& step : report->comparison.steps)
    steps.push_back(step.tokens);
  auto quantization = checkQuantization(original, originalManifest, quantized, quantizedManifest,
                                        plan, steps, threads, registries);
  if (!quantization)
    return quantization.takeError();
  report->quantization = *quantization;
  return report;
}

} // namespace

llvm::Expected<VerificationReport> verifyModels(const Model& a, const Manifest& manifestA,
                                                const Model& b, const Manifest& manifestB,
                                                EquivalencePlan plan, unsigned threads,
                                                const Registries& registries) {
  const bool isQuantizedA = hasQuantizedCaches(manifestA);
  if (isQuantizedA != hasQuantizedCaches(manifestB))
    return isQuantizedA
               ? verifyQuantized(b, manifestB, a, manifestA, std::move(plan), threads, registries)
               : verifyQuantized(a, manifestA, b, manifestB, std::move(plan), threads, registries);
  plan = fittedPlan(std::move(plan), b.graph(), manifestB);
  fitPast(fixedPastRows(manifestA), plan);
  if (plan.vocabulary == 0) {
    // Where the number of token ids is not known, the first two are taken.
    auto vocabulary = vocabularyOf(a.graph(), manifestA.inputs);
    plan.vocabulary = vocabulary ? std::max<int64_t>(1, *vocabulary) : 2;
    llvm::consumeError(vocabulary.takeError());
  }
  auto open = [&](const Model& model, const Manifest& manifest) {
    return openForPlan(model, manifest, plan, threads, registries);
  };
  const NarrowNumbers narrow = narrowNumbersOf(a);
  std::optional<PreparedModel> twin;
  if (narrow.unitRoundoff() > 0) {
    if (auto made = twinOf(a, manifestA, registries))
      twin = std::move(*made);
    else
      llvm::consumeError(made.takeError());
  }
  auto compare = [&]() -> llvm::Expected<VerificationReport> {
    auto sessionA = open(a, manifestA);
    if (!sessionA)
      return sessionA.takeError();
    auto sessionB = open(b, manifestB);
    if (!sessionB)
      return sessionB.takeError();
    std::unique_ptr<Session> sessionTwin;
    std::optional<ExactSession> exact;
    if (twin) {
      if (auto opened = open(*twin->model, twin->manifest)) {
        sessionTwin = std::move(*opened);
        exact.emplace(ExactSession{*sessionTwin, narrow.unitRoundoff()});
      } else {
        llvm::consumeError(opened.takeError());
      }
    }
    auto comparison = compareSessions(**sessionA, **sessionB, plan, exact);
    if (!comparison)
      return comparison.takeError();
    VerificationReport report;
    report.comparison = std::move(*comparison);
    report.tolerance = plan.tolerance;
    report.batch = plan.batch;
    report.vocabulary = plan.vocabulary;
    report.pastRows = plan.pastRows;
    report.guessed = guessedInputs((*sessionA)->callerInputs(), plan.recipes, manifestA.inputs);
    report.second = (*sessionB)->statistics();
    return report;
  };
  auto report = compare();
  // A model that was traced for one batch row, or for short sequences, is compared as it runs.
  while (!report) {
    auto alone = open(a, manifestA);
    if (!alone) {
      llvm::consumeError(alone.takeError());
      return report;
    }
    if (plan.pastRows > 0)
      if (llvm::Error error = (*alone)->preset(plan.pastRows)) {
        llvm::consumeError(std::move(error));
        return report;
      }
    DecoderStep prefill;
    prefill.recipes = plan.recipes;
    prefill.pastLength = plan.pastRows;
    prefill.tokens.assign(static_cast<size_t>(plan.batch),
                          std::vector<int64_t>(static_cast<size_t>(plan.prompt), 0));
    auto runs = stepDecoder(**alone, prefill);
    if (runs)
      return report;
    if (plan.batch == 1 && plan.prompt == plan.stepTokens) {
      llvm::consumeError(report.takeError());
      Diagnostic refusal = takeDiagnostic(runs.takeError());
      if (refusal.kind == Diagnostic::Kind::Usage)
        return makeError(std::move(refusal));
      return llvm::make_error<OriginalRefusal>(std::move(refusal));
    }
    llvm::consumeError(runs.takeError());
    llvm::consumeError(report.takeError());
    if (plan.batch > 1)
      plan.batch = 1;
    else
      plan.prompt = std::max(plan.stepTokens, plan.prompt / 2);
    report = compare();
  }
  return report;
}

const char OriginalRefusal::ID = 0;

llvm::Expected<VerificationReport> verifyRewrite(const std::string& originalPath,
                                                 const Model& rewritten, const Manifest& manifest,
                                                 const EquivalencePlan& plan,
                                                 const Registries& registries) {
  auto original = openModel(originalPath, registries);
  if (!original)
    return original.takeError();
  if (llvm::Error error = inferShapes((*original)->graph()))
    return error;
  auto originalManifest = drivingManifest(**original, originalPath, registries);
  if (!originalManifest)
    return originalManifest.takeError();
  return verifyModels(**original, *originalManifest, rewritten, manifest, plan, 1, registries);
}

namespace {

/// JSON has no infinity; a difference that is none is written as a string.
OrderedJson finite(double value) {
  if (std::isfinite(value))
    return value;
  return std::isnan(value) ? "nan" : "inf";
}

OrderedJson comparisonJson(const TensorComparison& tensor) {
  const Comparison& comparison = tensor.comparison;
  OrderedJson json = {{"max_abs", finite(comparison.maxAbs)}, {"max_ulp", comparison.maxUlp},
                      {"bit_exact", comparison.bitExact},     {"allowed", finite(tensor.allowed)},
                      {"compared", comparison.compared},      {"skipped", tensor.skipped}};
  if (!tensor.mismatch.empty())
    json["mismatch"] = tensor.mismatch;
  return json;
}

OrderedJson groupJson(llvm::ArrayRef<TensorComparison> tensors) {
  OrderedJson json = OrderedJson::object();
  for (const TensorComparison& tensor : tensors)
    json[tensor.name] = comparisonJson(tensor);
  return json;
}

} // namespace

void addInputOption(CLI::App& command, std::vector<std::string>& texts) {
  command
      .add_option("--input", texts,
                  "NAME=VALUE[@EXTENTS]: what to feed an input, as in bias=additive_mask or "
                  "kind=zeros@batch,new; may be given again")
      ->allow_extra_args(false);
}

llvm::Expected<std::vector<InputRecipe>> recipesOf(llvm::ArrayRef<std::string> texts) {
  std::vector<InputRecipe> recipes;
  for (const std::string& text : texts) {
    auto recipe = parseInputRecipe(text);
    if (!recipe)
      return recipe.takeError();
    for (const InputRecipe& other : recipes)
      if (other.input == recipe->input)
        return usageError("--input {} is given twice", other.input);
    recipes.push_back(std::move(*recipe));
  }
  return recipes;
}

OrderedJson verificationJson(const VerificationReport& report) {
  OrderedJson json;
  json["schema"] = "kvopt/verify/1";
  json["equal"] = report.equal();
  json["steps"] = OrderedJson::array();
  for (const StepComparison& step : report.comparison.steps)
    json["steps"].push_back({{"phase", step.phase},
                             {"tokens", step.tokens},
                             {"outputs", groupJson(step.outputs)},
                             {"caches", groupJson(step.caches)}});
  json["worst"] = nullptr;
  if (const TensorComparison* worst = report.comparison.worst()) {
    json["worst"] = comparisonJson(*worst);
    json["worst"]["name"] = worst->name;
  }
  json["batch"] = report.batch;
  if (report.pastRows != 0)
    json["past_rows"] = report.pastRows;
  if (!report.guessed.empty())
    json["guessed_inputs"] = report.guessed;
  json["refused_by_both"] = nullptr;
  if (report.comparison.refusedSteps != 0)
    json["refused_by_both"] = {{"steps", report.comparison.refusedSteps},
                               {"message", report.comparison.refusal},
                               {"alike", report.comparison.refusedDifferently.empty()}};
  json["tokens_equal"] = report.comparison.tokensEqual;
  if (report.quantization)
    json["quantization"] = quantizationJson(*report.quantization);
  json["tolerance"] = {{"atol", report.tolerance.absolute}, {"rtol", report.tolerance.relative}};
  json["cache_bytes"] = {{"written", report.second.cacheBytesWritten},
                         {"copied", report.second.inPlaceBytesCopied}};
  return json;
}

namespace {

std::string comparisonSummary(const VerificationReport& report) {
  bool anyCache = false;
  bool cachesExact = true;
  uint64_t maxUlp = 0;
  int64_t skipped = 0;
  for (const StepComparison& step : report.comparison.steps) {
    anyCache |= !step.caches.empty();
    for (const TensorComparison& cache : step.caches)
      cachesExact &= cache.comparison.bitExact;
    for (const auto* group : {&step.outputs, &step.caches})
      for (const TensorComparison& tensor : *group) {
        maxUlp = std::max(maxUlp, tensor.comparison.maxUlp);
        skipped += tensor.skipped;
      }
  }
  const TensorComparison* worst = report.comparison.worst();
  std::string text =
      fmt::format("{} steps   max abs {:.1e}   max ulp {}   caches {}",
                  report.comparison.steps.size(), worst ? worst->comparison.maxAbs : 0.0, maxUlp,
                  !anyCache     ? "none found"
                  : cachesExact ? "identical"
                                : "compared");
  if (report.comparison.anyToken)
    text += report.comparison.tokensEqual ? "   tokens equal" : "   tokens DIFFERENT";
  if (report.pastRows != 0)
    text += fmt::format("   after {} made-up rows, all that the model takes", report.pastRows);
  if (skipped != 0)
    text += fmt::format("   {} elements of padding left out", skipped);
  const ComparisonReport& steps = report.comparison;
  if (!steps.refusedDifferently.empty())
    return text +
           fmt::format("   DIFFERENT: one model refuses a step with: {}", steps.refusedDifferently);
  if (steps.refusedSteps != 0)
    text +=
        fmt::format("   {} steps that both refuse alike: {}", steps.refusedSteps, steps.refusal);
  if (!report.guessed.empty())
    text += fmt::format("   inputs of unknown meaning, with numbers of any kind (see --input): {}",
                        fmt::join(report.guessed, ", "));
  if (report.comparison.equal() && report.comparison.tokensEqual)
    return text + "   OK";
  return text + fmt::format("   DIFFERENT: worst is '{}'", worst ? worst->name : "");
}

} // namespace

std::string verificationSummary(const VerificationReport& report) {
  if (!report.quantization)
    return comparisonSummary(report);
  return "without quantization: " + comparisonSummary(report) + "\n  " +
         quantizationSummary(*report.quantization);
}

} // namespace kvopt
