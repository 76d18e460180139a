// A shipped model in the three forms that are compared: as exported, with its attention raised but
// its caches still growing, and rewritten in place.
#pragma once

#include "driver/recover.h"
#include "driver/verify/report.h"
#include "driver/verify/verification.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/equivalence/reference_steps.h"
#include "runtime/session/decoder_inputs.h"
#include "support/diagnostic.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

namespace kvopt {

/// Fails the test with the error's text.
template <class T> T valueOrThrow(llvm::Expected<T> value) {
  if (value)
    return std::move(*value);
  throw std::runtime_error(takeDiagnostic(value.takeError()).str());
}
inline void successOrThrow(llvm::Error error) {
  if (error)
    throw std::runtime_error(takeDiagnostic(std::move(error)).str());
}

inline std::string modelFolder(const std::string& name) {
  return std::string(KVOPT_SOURCE_DIR) + "/models/" + name;
}

/// A model with how to drive it.
struct DrivenModel {
  std::unique_ptr<Model> model;
  Manifest manifest;
};

inline DrivenModel asExported(const std::string& path, const Toolkit& toolkit) {
  DrivenModel driven;
  driven.model = valueOrThrow(importModel(path, toolkit.ops));
  successOrThrow(inferShapes(driven.model->graph()));
  driven.manifest = valueOrThrow(drivingManifest(*driven.model, toolkit));
  return driven;
}

inline DrivenModel raised(const std::string& path, const Toolkit& toolkit) {
  RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
  Manifest manifest = drivingManifest(recovered.model->graph(), recovered.context->sites);
  return {std::move(recovered.model), std::move(manifest)};
}

/// `options` are those of the pass `lower`, as `layers=0`.
inline DrivenModel rewritten(const std::string& path, const Toolkit& toolkit,
                             const std::string& options = "", const std::string& target = "kvopt") {
  DrivenModel driven;
  driven.model = valueOrThrow(importModel(path, toolkit.ops));
  PassContext context(toolkit.rules, toolkit.targets);
  PassManager manager(toolkit.passes, {});
  successOrThrow(manager.addPipeline("restore-caches," + std::string(recoveryPipeline) +
                                     ",lower{to=" + target + " " + options +
                                     "},eliminate-dead-nodes"));
  successOrThrow(manager.run(*driven.model, context));
  if (!context.manifest)
    throw std::runtime_error("nothing was lowered");
  driven.manifest = *context.manifest;
  return driven;
}

inline std::unique_ptr<Session> openSession(const DrivenModel& driven,
                                            const KernelRegistry& kernels, SessionOptions options) {
  options.poison = true;
  return valueOrThrow(Session::create(*driven.model, kernels, driven.manifest, options));
}

/// All kernels but those of kvopt's own operators, whose function bodies run then.
inline std::unique_ptr<KernelRegistry> standardKernels(const Toolkit& toolkit) {
  auto standard = std::make_unique<KernelRegistry>();
  for (const Kernel* kernel : toolkit.kernels.all())
    if (kernel->op.domain() != kvoptDomain)
      standard->add(kernel->op, kernel->since, kernel->run, kernel->until).acceptsStrides =
          kernel->acceptsStrides;
  return standard;
}

/// A short session of padded batch rows.
inline EquivalencePlan shortPlan(const Model& model) {
  EquivalencePlan plan;
  plan.prompt = 9;
  plan.chunks = {4, 1};
  plan.decodeSteps = 5;
  plan.padding = Padding::Left;
  plan.vocabulary = valueOrThrow(vocabularyOf(model.graph()));
  return plan;
}

/// Feeds random tokens, the same for every stream of one seed.
class TokenStream {
public:
  TokenStream(const Model& model, int64_t batchSize)
      : any(0, valueOrThrow(vocabularyOf(model.graph())) - 1), batch(batchSize) {}

  StepResult feed(Session& session, int64_t count) {
    DecoderStep step;
    step.pastLength = session.length();
    for (int64_t row = 0; row < batch; ++row) {
      step.tokens.emplace_back();
      for (int64_t i = 0; i < count; ++i)
        step.tokens.back().push_back(any(random));
    }
    return valueOrThrow(stepDecoder(session, step));
  }

private:
  std::mt19937_64 random{7};
  std::uniform_int_distribution<int64_t> any;
  int64_t batch;
};

/// The same tokens for every session of one length.
inline StepResult stepAlike(Session& session, int64_t count, int64_t seed = 1) {
  DecoderStep step;
  step.pastLength = session.length();
  for (int64_t row = 0; row < session.batch(); ++row) {
    step.tokens.emplace_back();
    for (int64_t i = 0; i < count; ++i)
      step.tokens.back().push_back((seed * 7 + row * 3 + (session.length() + i) * 5) % 60);
  }
  return valueOrThrow(stepDecoder(session, step));
}

struct ShippedModel {
  const char* name;
  unsigned sites;
};

inline void PrintTo(const ShippedModel& model, std::ostream* out) { *out << model.name; }

/// Tests that run for every model that ships with the project.
class ShippedModelTest : public testing::TestWithParam<ShippedModel> {
protected:
  std::string folder() const { return modelFolder(GetParam().name); }
  std::string path() const { return folder() + "/model.onnx"; }
  std::vector<std::string> referenceCases() const {
    std::vector<std::string> cases;
    for (const ReferenceCase& each : kvopt::referenceCases(folder()))
      cases.push_back(each.path);
    return cases;
  }

  /// Expects that a prefill of 33 tokens, chunks of 16, 1 and 7 and 64 decode steps of two batch
  /// rows leave the same outputs and caches as in the exported model.
  VerificationReport expectEqualsExported(const DrivenModel& exported, const DrivenModel& found,
                                          Padding padding) {
    EquivalencePlan plan;
    plan.padding = padding;
    plan.tolerance = {1e-4, 0};
    VerificationReport report = valueOrThrow(verifyModels(
        *exported.model, exported.manifest, *found.model, found.manifest, plan, 1, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
    EXPECT_TRUE(report.comparison.tokensEqual);
    EXPECT_EQ(report.comparison.steps.size(), 68u);
    for (const StepComparison& step : report.comparison.steps) {
      EXPECT_EQ(step.outputs.size(), 1u);
      EXPECT_EQ(step.caches.size(), 2 * GetParam().sites);
      for (const auto* group : {&step.outputs, &step.caches})
        for (const TensorComparison& tensor : *group)
          EXPECT_GT(tensor.comparison.compared, 0) << step.phase << " " << tensor.name;
    }
    return report;
  }

  Toolkit toolkit;
};

inline auto shippedModels() {
  return testing::Values(ShippedModel{"kjv", 4}, ShippedModel{"llama_gqa-ts14-eager", 2},
                         ShippedModel{"gpt2-dynamo18-eager", 2},
                         ShippedModel{"qwen2-dynamo23-sdpa", 2});
}

inline std::string shippedModelName(const testing::TestParamInfo<ShippedModel>& parameter) {
  std::string name = parameter.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

} // namespace kvopt
