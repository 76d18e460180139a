// Running and reporting comparisons.
#include "cli/verification.h"

#include "cli/recover.h"
#include "ir/onnx_import.h"
#include "ir/shape_inference.h"

#include <cmath>
#include <fmt/format.h>

namespace kvopt {

EquivalencePlan quickVerification() {
  EquivalencePlan plan;
  plan.chunks = {7};
  plan.decodeSteps = 24;
  plan.batch = 1;
  return plan;
}

EquivalencePlan fullVerification() { return EquivalencePlan(); }

llvm::Expected<VerificationReport> verifyModels(const Model& a, const Manifest& manifestA,
                                                const Model& b, const Manifest& manifestB,
                                                EquivalencePlan plan, unsigned threads,
                                                const Registries& registries) {
  if (plan.vocabulary == 0) {
    auto vocabulary = vocabularyOf(a.graph());
    if (!vocabulary)
      return vocabulary.takeError();
    plan.vocabulary = *vocabulary;
  }
  auto open = [&](const Model& model, const Manifest& manifest) {
    SessionOptions options;
    options.batch = plan.batch;
    options.threads = threads;
    options.poison = true;
    if (!manifest.capacityValue)
      options.capacity = plan.totalTokens();
    return Session::create(model, registries.kernels, manifest, options);
  };
  auto sessionA = open(a, manifestA);
  if (!sessionA)
    return sessionA.takeError();
  auto sessionB = open(b, manifestB);
  if (!sessionB)
    return sessionB.takeError();
  auto comparison = compareSessions(**sessionA, **sessionB, plan);
  if (!comparison)
    return comparison.takeError();
  VerificationReport report;
  report.comparison = std::move(*comparison);
  report.tolerance = plan.tolerance;
  report.second = (*sessionB)->statistics();
  return report;
}

llvm::Expected<VerificationReport> verifyRewrite(const std::string& originalPath,
                                                 const Model& rewritten, const Manifest& manifest,
                                                 const EquivalencePlan& plan,
                                                 const Registries& registries) {
  auto original = importModel(originalPath, registries.ops);
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
  return {{"max_abs", finite(comparison.maxAbs)},
          {"max_ulp", comparison.maxUlp},
          {"bit_exact", comparison.bitExact},
          {"compared", comparison.compared},
          {"skipped", tensor.skipped}};
}

OrderedJson groupJson(llvm::ArrayRef<TensorComparison> tensors) {
  OrderedJson json = OrderedJson::object();
  for (const TensorComparison& tensor : tensors)
    json[tensor.name] = comparisonJson(tensor);
  return json;
}

} // namespace

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
  json["tokens_equal"] = report.comparison.tokensEqual;
  json["tolerance"] = {{"atol", report.tolerance.absolute}, {"rtol", report.tolerance.relative}};
  json["cache_bytes"] = {{"written", report.second.cacheBytesWritten},
                         {"copied", report.second.inPlaceBytesCopied}};
  return json;
}

std::string verificationSummary(const VerificationReport& report) {
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
      fmt::format("{} steps   max abs {:.1e}   max ulp {}   caches {}   tokens {}",
                  report.comparison.steps.size(), worst ? worst->comparison.maxAbs : 0.0, maxUlp,
                  !anyCache     ? "none found"
                  : cachesExact ? "identical"
                                : "compared",
                  report.comparison.tokensEqual ? "equal" : "DIFFERENT");
  if (skipped != 0)
    text += fmt::format("   {} elements of padding left out", skipped);
  if (report.equal())
    return text + "   OK";
  return text + fmt::format("   DIFFERENT: worst is '{}'", worst ? worst->name : "");
}

} // namespace kvopt
