// Comparison of two models: numbers, rounded rows, quantized caches and codes.
#include "driver/verify/verification.h"

#include "driver/claims/claims.h"
#include "driver/first_step.h"
#include "driver/recover.h"
#include "driver/roles/driving.h"
#include "driver/variants.h"
#include "driver/verify/runs.h"
#include "driver/verify/tables.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/shapes/shape_inference.h"
#include "ir/verify/model_gate.h"
#include "passes/analysis/tokens/row_operators.h"
#include "passes/unrounding/narrowed_model.h"
#include "passes/unrounding/quantized_groups.h"
#include "passes/unrounding/quantized_model.h"
#include "passes/unrounding/unrounded_codes.h"
#include "passes/unrounding/widened_model.h"
#include "runtime/session/decoder_inputs.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace pattern;
using namespace runtime;
using namespace unrounding;
using namespace targets;

namespace {

constexpr Tolerance halfTolerance{2e-2, 2e-2};

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
  return anyHalf ? Tolerance{halfTolerance.absolute * roundings, halfTolerance.relative}
                 : Tolerance{1e-4, 1e-4};
}

bool roundsStates(const Manifest& manifest) {
  return manifest.tiles && manifest.tiles->state == ElementType::Float16;
}

Tolerance toleranceBetween(const Graph& original, const Manifest& second) {
  const Tolerance usual = toleranceFor(original, 2);
  if (!roundsStates(second))
    return usual;
  return {std::max(usual.absolute, 2 * halfTolerance.absolute),
          std::max(usual.relative, halfTolerance.relative)};
}

namespace {

/// Opens a model without a manifest.
llvm::Expected<PreparedModel> openPrepared(const ModelSource& source, const Toolkit& toolkit) {
  PreparedModel prepared;
  auto model = openModel(source, toolkit);
  if (!model)
    return model.takeError();
  prepared.model = std::move(*model);
  if (llvm::Error error = inferShapes(prepared.model->graph()))
    return withFile(std::move(error), source.path);
  // Whether a function fits its calls depends on inferred types.
  if (llvm::Error error = checkFunctionBodies(*prepared.model))
    return withFile(std::move(error), source.path);
  return prepared;
}

llvm::Error openFirstStepOf(PreparedModel& prepared, const ModelSource& source,
                            const Toolkit& toolkit) {
  auto first = openFirstStep(source, prepared.manifest, toolkit);
  if (!first)
    return first.takeError();
  prepared.firstStep = std::move(*first);
  return llvm::Error::success();
}

} // namespace

llvm::Expected<PreparedModel> prepareModel(const ModelSource& source, const Toolkit& toolkit) {
  auto prepared = openPrepared(source, toolkit);
  if (!prepared)
    return prepared;
  auto manifest = drivingManifest(*prepared->model, toolkit);
  if (!manifest)
    return withFile(manifest.takeError(), source.path);
  prepared->manifest = std::move(*manifest);
  if (llvm::Error error = openFirstStepOf(*prepared, source, toolkit))
    return error;
  return prepared;
}

llvm::Expected<PreparedModel> prepareTested(const ModelSource& source, const Toolkit& toolkit,
                                            llvm::ArrayRef<InputRecipe> recipes) {
  auto prepared = openPrepared(source, toolkit);
  if (!prepared)
    return prepared;
  auto tested = testedManifest(*prepared->model, toolkit, recipes);
  if (!tested)
    return withFile(tested.takeError(), source.path);
  prepared->manifest = std::move(tested->manifest);
  prepared->untested = std::move(tested->untested);
  if (llvm::Error error = openFirstStepOf(*prepared, source, toolkit))
    return error;
  return prepared;
}

namespace {

/// The weights of a larger twin would leave too little memory for the models.
constexpr int64_t mostTwinElements = int64_t{1} << 28;

/// The model with all numbers in f32, for measuring its own rounding.
llvm::Expected<PreparedModel> twinOf(const Model& model, const Manifest& manifest,
                                     const Toolkit& toolkit) {
  if (!manifest.variants.empty())
    return unsupported("there is no twin of a model in variants");
  int64_t elements = 0;
  for (const std::unique_ptr<Value>& initializer : model.graph().initializers())
    if (initializer->initializer() && byteWidth(initializer->type().elementType()) == 2u)
      elements += std::min(initializer->initializer()->elementCount(), mostTwinElements);
  if (elements > mostTwinElements)
    return unsupported("the twin in f32 would be too large");
  auto copy = cloneModel(model, toolkit);
  if (!copy)
    return copy.takeError();
  PreparedModel twin;
  twin.model = std::move(*copy);
  twin.manifest = manifest;
  if (llvm::Error error = widenModel(*twin.model, twin.manifest))
    return error;
  return twin;
}

} // namespace

llvm::Expected<std::unique_ptr<Model>> cloneModel(const Model& model, const Toolkit& toolkit) {
  auto bytes = exportModelBytes(model);
  if (!bytes)
    return bytes.takeError();
  auto copy = importModelBytes(std::as_bytes(std::span<const char>(bytes->data(), bytes->size())),
                               model.folder, toolkit.ops, ModelLimits::none());
  if (copy)
    (*copy)->path = model.path;
  return copy;
}

llvm::Expected<std::unique_ptr<Session>> openForTokens(const Model& model, const Manifest& manifest,
                                                       int64_t batch, int64_t tokens,
                                                       unsigned threads, const Toolkit& toolkit) {
  SessionOptions options;
  options.batch = batch;
  options.threads = threads;
  options.poison = true;
  options.variants = variantsInMemory(model, manifest);
  if (!manifest.capacityValue)
    options.capacity = std::max<int64_t>(tokens, 1);
  auto session = Session::create(model, toolkit.runner->kernels(), manifest, options);
  if (session)
    return session;
  // The caller, not the user, chose the options.
  Diagnostic diagnostic = takeDiagnostic(session.takeError());
  if (diagnostic.kind == Diagnostic::Kind::Usage)
    diagnostic.kind = Diagnostic::Kind::Unsupported;
  return withFile(makeError(std::move(diagnostic)), model.path);
}

namespace {

/// The steps of the first run, the longest one that every model accepts.
llvm::SmallVector<int64_t, 16> stepsOfFirstRun(const VerificationReport& report) {
  llvm::SmallVector<int64_t, 16> steps;
  for (const StepComparison& step :
       llvm::ArrayRef<StepComparison>(report.comparison.steps).take_front(report.runs[0].steps))
    steps.push_back(step.tokens);
  return steps;
}

/// A copy of a model and its manifest, for changes.
llvm::Expected<PreparedModel> preparedCopy(const Model& model, const Manifest& manifest,
                                           const Toolkit& toolkit) {
  auto copy = cloneModel(model, toolkit);
  if (!copy)
    return copy.takeError();
  PreparedModel prepared;
  prepared.model = std::move(*copy);
  prepared.manifest = manifest;
  if (llvm::Error error = inferShapes(prepared.model->graph()))
    return withFile(std::move(error), model.path);
  return prepared;
}

/// Compares `rounded` without its rounding with `original`, then measures the effect of the
/// rounding.
llvm::Expected<VerificationReport>
verifyRounded(const Model& original, const Manifest& originalManifest, const Model& rounded,
              const Manifest& roundedManifest, const VerificationPlan& plan, unsigned threads,
              const Toolkit& toolkit, const Model* firstOfRounded) {
  auto plain = preparedCopy(rounded, roundedManifest, toolkit);
  if (!plain)
    return plain.takeError();
  if (llvm::Error error = keepExportedRows(*plain->model, plain->manifest))
    return withFile(std::move(error), rounded.path);
  VerificationPlan exact = plan;
  exact.setTolerance(toleranceFor(original.graph(), 2));
  auto report = verifyModels(original, originalManifest, *plain->model, plain->manifest, exact,
                             threads, toolkit, firstOfRounded);
  if (!report || report->runs.empty() || stepsOfFirstRun(*report).empty())
    return report;
  // Results of padding may differ from the original's, but not between these two models.
  auto rounding = checkRounding(*plain->model, plain->manifest, rounded, roundedManifest,
                                report->runs[0].plan, stepsOfFirstRun(*report), threads, toolkit);
  if (!rounding)
    return rounding.takeError();
  report->rounding = *rounding;
  return report;
}

/// Compares two models whose codes differ. For a number halfway between two codes, the last bit of
/// a sum decides. This compares the models without rounding, and adds the differences of codes. The
/// result is `different` if the models also differ without rounding, or if they cannot be compared.
llvm::Expected<VerificationReport> verifyCodes(const ComparedModels& models,
                                               VerificationReport different,
                                               const VerificationPlan& plan, unsigned threads,
                                               const Toolkit& toolkit) {
  CodesReport codes;
  llvm::StringSet<> presents;
  for (const ManifestCache& cache : models.manifestA.caches)
    if (holdsCodes(cache))
      presents.insert(cache.present);
  codes.caches = presents.size();
  codes.tokensEqual = different.comparison.tokensEqual;
  for (const StepComparison& step : different.comparison.steps)
    codes.add(step, presents);
  if (!codes.areNeighbors())
    return different;
  auto plainA = preparedCopy(models.a, models.manifestA, toolkit);
  if (!plainA)
    return plainA.takeError();
  auto plainB = preparedCopy(models.b, models.manifestB, toolkit);
  if (!plainB)
    return plainB.takeError();
  for (PreparedModel* plain : {&*plainA, &*plainB})
    if (llvm::Error error = keepUnroundedCodes(*plain->model, plain->manifest)) {
      llvm::consumeError(std::move(error));
      return different;
    }
  // Caches count steps of their scales, to which tolerances do not apply. They have already been
  // compared.
  for (ManifestCache& cache : plainB->manifest.caches)
    cache.holdsAttendedRows |= presents.contains(cache.present);
  auto report = verifyModels(*plainA->model, plainA->manifest, *plainB->model, plainB->manifest,
                             plan, threads, toolkit);
  if (!report)
    return report;
  if (!report->equal())
    return different;
  report->codes = codes;
  return report;
}

/// Compares `quantized` with `original` in two parts.
llvm::Expected<VerificationReport>
verifyQuantized(const Model& original, const Manifest& originalManifest, const Model& quantized,
                const Manifest& quantizedManifest, CodeForms forms, const VerificationPlan& plan,
                unsigned threads, const Toolkit& toolkit, const Model* firstOfQuantized) {
  auto copy = preparedCopy(quantized, quantizedManifest, toolkit);
  if (!copy)
    return copy.takeError();
  PreparedModel& plain = *copy;
  if (llvm::Error error = unquantize(*plain.model, plain.manifest, forms))
    return withFile(std::move(error), quantized.path);
  auto report = verifyModels(original, originalManifest, *plain.model, plain.manifest, plan,
                             threads, toolkit, firstOfQuantized);
  if (!report)
    return report;
  std::vector<std::string> miswired = miswiredCaches(quantized, quantizedManifest);
  const bool isMiswired = !miswired.empty();
  llvm::move(miswired, std::back_inserter(report->comparison.differences));
  for (const Node& node : quantized.graph().nodes())
    if (forms.groupCodes && codeBits(node) != 0 && !hasFiniteScales(node))
      report->comparison.differences.push_back(
          formatted("{} has scales that are not finite", node.describe()));
  // For caches of other operators than attention, there is no definition for a comparison.
  if (isMiswired || report->runs.empty() || stepsOfFirstRun(*report).empty())
    return report;
  for (const Node& node : quantized.graph().nodes())
    if (const std::string obstacle = codeBits(node) != 0 ? groupObstacle(node) : "";
        forms.groupCodes && !obstacle.empty()) {
      report->notCovered.push_back("codes and their definition: " + obstacle);
      forms.groupCodes = false;
    }
  // Made-up rows do not exist for codes with constant scales.
  if (forms.groupCodes && report->runs[0].plan.pastRows > 0) {
    report->notCovered.push_back("codes and their definition: every step follows made-up rows");
    forms.groupCodes = false;
  }
  if (!forms.any())
    return report;
  // A model that is driven in another way takes other steps. Then the comparison is with the model
  // without quantization, which is equivalent.
  const bool isDrivenAlike = !originalManifest.caches.empty() && !firstOfQuantized;
  auto quantization = checkQuantization(isDrivenAlike ? original : *plain.model,
                                        isDrivenAlike ? originalManifest : plain.manifest,
                                        quantized, quantizedManifest, forms, report->runs[0].plan,
                                        stepsOfFirstRun(*report), threads, toolkit);
  if (!quantization)
    return withFile(quantization.takeError(), quantized.path);
  report->quantization = *quantization;
  return report;
}

} // namespace

namespace {

/// Whether the model has the inputs of another model's first step. A model that takes the results
/// of the first step instead is fed like that other model.
bool isFedBy(const Model* firstStep, const Model& model) {
  return firstStep && llvm::all_of(firstStep->graph().inputs(), [&](const auto& input) {
           const Value* same = model.graph().findValue(input->name());
           return same && same->isGraphInput();
         });
}

} // namespace

namespace {

/// Explains a difference between models that quantize while they run: a scale changes with the last
/// bit of a sum, and all codes change with it.
void noteDynamicQuantization(const Graph& graph, VerificationReport& report) {
  const std::string why = "dynamic quantization has one scale over all tokens, so that padded rows "
                          "and the order of sums "
                          "change what visible tokens compute";
  std::vector<std::string>& differences = report.comparison.differences;
  if (report.isDifferent() && !llvm::is_contained(differences, why) &&
      llvm::any_of(graph.nodes(), quantizesDynamically))
    differences.push_back(why);
}

llvm::Expected<VerificationReport> verifyPair(const Model& a, const Manifest& manifestA,
                                              const Model& b, const Manifest& manifestB,
                                              const VerificationPlan& plan, unsigned threads,
                                              const Toolkit& toolkit, const Model* firstOfB) {
  if (hasNarrowedCaches(manifestA) != hasNarrowedCaches(manifestB))
    return hasNarrowedCaches(manifestA)
               ? verifyRounded(b, manifestB, a, manifestA, plan, threads, toolkit, nullptr)
               : verifyRounded(a, manifestA, b, manifestB, plan, threads, toolkit, firstOfB);
  const CodeForms formsOfA = codeForms(a, manifestA), formsOfB = codeForms(b, manifestB);
  const CodeForms onlyA{formsOfA.rowScales && !formsOfB.rowScales,
                        formsOfA.groupCodes && !formsOfB.groupCodes};
  const CodeForms onlyB{formsOfB.rowScales && !formsOfA.rowScales,
                        formsOfB.groupCodes && !formsOfA.groupCodes};
  if (onlyA.any())
    return verifyQuantized(b, manifestB, a, manifestA, onlyA, plan, threads, toolkit, nullptr);
  if (onlyB.any())
    return verifyQuantized(a, manifestA, b, manifestB, onlyB, plan, threads, toolkit, firstOfB);
  const NarrowNumbers narrow = narrowNumbersOf(a);
  std::optional<PreparedModel> twin;
  if (narrow.unitRoundoff() > 0) {
    if (auto made = twinOf(a, manifestA, toolkit))
      twin = std::move(*made);
    else
      llvm::consumeError(made.takeError());
  }
  ComparedModels models{a, manifestA, b, manifestB, isFedBy(firstOfB, a) ? firstOfB : nullptr};
  if (twin) {
    models.twin = &*twin;
    models.unitRoundoff = narrow.unitRoundoff();
  }
  auto report = runVerification(models, plan, threads, toolkit);
  if (!report || !report->isDifferent() || firstOfB ||
      !llvm::any_of(manifestA.caches, holdsCodes) || !llvm::any_of(manifestB.caches, holdsCodes))
    return report;
  return verifyCodes(models, std::move(*report), plan, threads, toolkit);
}

} // namespace

llvm::Expected<VerificationReport> verifyModels(const Model& a, const Manifest& manifestA,
                                                const Model& b, const Manifest& manifestB,
                                                const VerificationPlan& plan, unsigned threads,
                                                const Toolkit& toolkit, const Model* firstOfB) {
  auto report = verifyPair(a, manifestA, b, manifestB, plan, threads, toolkit, firstOfB);
  if (report)
    noteDynamicQuantization(a.graph(), *report);
  return report;
}

llvm::Expected<VerificationReport> verifyPrepared(const PreparedModel& a, const PreparedModel& b,
                                                  const VerificationPlan& plan, unsigned threads,
                                                  const Toolkit& toolkit) {
  const ClaimedModel ofA{*a.model, a.manifest};
  const ClaimedModel ofB{*b.model, b.manifest};
  auto claimsA = checkClaims(ofA, ofB, toolkit);
  if (!claimsA)
    return claimsA.takeError();
  auto claimsB = checkClaims(ofB, ofA, toolkit);
  if (!claimsB)
    return claimsB.takeError();
  const auto compared = [&](const Manifest& manifestA, const Manifest& manifestB) {
    return verifyModels(*a.model, manifestA, *b.model, manifestB, plan, threads, toolkit,
                        b.firstStep.get());
  };
  auto report = compared(claimsA->manifest, claimsB->manifest);
  if (!report && (claimsA->isWidened || claimsB->isWidened)) {
    llvm::consumeError(report.takeError());
    report = compared(a.manifest, b.manifest);
  }
  if (!report)
    return report;
  compareTables(*a.model, *b.model, *report);
  for (const auto& [name, claims] :
       {std::pair("the first model", &*claimsA), std::pair("the second model", &*claimsB)})
    for (const std::string& sentence : claims->unproved)
      report->unproved.push_back(formatted("{}: {}", name, sentence));
  return report;
}

void CodesReport::add(const StepComparison& step, const llvm::StringSet<>& presents) {
  for (const TensorComparison& cache : step.caches) {
    if (!presents.contains(cache.name))
      continue;
    compared += cache.comparison.compared;
    different += cache.comparison.violations;
    largest = cache.mismatch.empty() ? std::max(largest, cache.comparison.maxAbs)
                                     : std::numeric_limits<double>::infinity();
  }
  for (const TensorComparison& output : step.outputs)
    largestOutput = std::max(largestOutput, output.comparison.maxAbs);
}

const char OriginalRefusal::ID = 0;

llvm::Expected<VerificationReport> verifyRewrite(const std::string& originalPath,
                                                 const Model& rewritten, const Manifest& manifest,
                                                 const VerificationPlan& plan,
                                                 const Toolkit& toolkit) {
  auto original = openModel(originalPath, toolkit);
  if (!original)
    return original.takeError();
  if (llvm::Error error = inferShapes((*original)->graph()))
    return error;
  auto driven = testedManifest(**original, toolkit);
  if (!driven)
    return driven.takeError();
  return verifyModels(**original, driven->manifest, rewritten, manifest, plan, 1, toolkit);
}

} // namespace kvopt::driver
