// A shipped model in the three forms that are compared: as exported, with its attention raised but
// its caches still growing, and rewritten in place.
#pragma once

#include "driver/recover.h"
#include "driver/rewrite/comparison.h"
#include "driver/verify/report.h"
#include "driver/verify/verification.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "meaning/definitions.h"
#include "runtime/equivalence/reference_steps.h"
#include "runtime/session/decoder_inputs.h"
#include "support/diagnostic.h"
#include "tests/sanitized.h"
#include "tests/support/temporary_folder.h"

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

/// The report of the runs of a rewrite.
inline const driver::VerificationReport& runsOf(const driver::RewriteComparison& rewritten) {
  return static_cast<const driver::VerificationReport&>(*rewritten.verification);
}

/// A model with how to drive it.
struct DrivenModel {
  std::unique_ptr<ir::Model> model;
  ir::Manifest manifest;
};

inline DrivenModel asExported(const std::string& path, const driver::Toolkit& toolkit) {
  DrivenModel driven;
  driven.model = valueOrThrow(ir::importModel(path, toolkit.ops));
  successOrThrow(ir::inferShapes(driven.model->graph()));
  driven.manifest = valueOrThrow(drivingManifest(*driven.model, toolkit));
  return driven;
}

inline DrivenModel raised(const std::string& path, const driver::Toolkit& toolkit) {
  driver::RecoveredModel recovered = valueOrThrow(driver::recoverModel(path, toolkit));
  ir::Manifest manifest = targets::exportedManifest(
      recovered.model->graph(), recovered.context->sites, recovered.context->interface);
  recovered.context->history.writeTo(manifest);
  return {std::move(recovered.model), std::move(manifest)};
}

/// `options` are those of the pass `lower`, as `layers=0`.
inline DrivenModel rewritten(const std::string& path, const driver::Toolkit& toolkit,
                             const std::string& options = "", const std::string& target = "kvopt") {
  DrivenModel driven;
  driven.model = valueOrThrow(ir::importModel(path, toolkit.ops));
  passes::PassContext context(toolkit.rules, toolkit.targets);
  passes::PassManager manager(toolkit.passes, {});
  successOrThrow(manager.addPipeline("restore-caches," + std::string(driver::recoveryPipeline) +
                                     ",lower{to=" + target + " " + options +
                                     "},eliminate-dead-nodes"));
  successOrThrow(manager.run(*driven.model, context));
  if (!context.manifest)
    throw std::runtime_error("nothing was lowered");
  driven.manifest = *context.manifest;
  return driven;
}

inline std::unique_ptr<runtime::Session> openSession(const DrivenModel& driven,
                                                     const runtime::KernelRegistry& kernels,
                                                     runtime::SessionOptions options) {
  options.poison = true;
  return valueOrThrow(runtime::Session::create(*driven.model, kernels, driven.manifest, options));
}

/// All kernels but those of kvopt's own operators, whose function bodies run then.
inline std::unique_ptr<runtime::KernelRegistry> standardKernels(const driver::Toolkit& toolkit) {
  auto standard = std::make_unique<runtime::KernelRegistry>();
  for (const runtime::Kernel* kernel : toolkit.runner->kernels().all())
    if (kernel->op.domain() != ir::kvoptDomain)
      standard->add(kernel->op, kernel->since, kernel->run, kernel->until).acceptsStrides =
          kernel->acceptsStrides;
  meaning::definitions().forEach([&](ir::OpName name, int64_t since, meaning::Define define) {
    standard->addDefinition(name, since, define);
  });
  return standard;
}

/// The path of a file with the model of this text.
inline std::string writtenModel(const std::string& text, const driver::Toolkit& toolkit,
                                const TemporaryFolder& folder) {
  auto model = valueOrThrow(ir::readText(text, toolkit.ops));
  successOrThrow(ir::inferShapes(model->graph()));
  std::string path = folder.path("model.onnx");
  successOrThrow(ir::exportModel(*model, path));
  return path;
}

/// Expects that function bodies and kernels of kvopt's operators give the same.
inline void expectEqualBodies(const DrivenModel& driven, runtime::EquivalencePlan plan,
                              const driver::Toolkit& toolkit) {
  const auto standard = standardKernels(toolkit);
  runtime::SessionOptions options;
  options.batch = plan.batch;
  options.capacity = plan.totalTokens() + 3;
  auto fused = openSession(driven, toolkit.runner->kernels(), options);
  auto body =
      valueOrThrow(runtime::Session::create(*driven.model, *standard, driven.manifest, options));
  plan.tolerance = {1e-5, 0};
  EXPECT_TRUE(valueOrThrow(runtime::compareSessions(*fused, *body, plan)).equal());
}

/// A short session of padded batch rows.
inline runtime::EquivalencePlan shortPlan(const ir::Model& model) {
  runtime::EquivalencePlan plan;
  plan.prompt = 9;
  plan.chunks = {4, 1};
  plan.decodeSteps = 5;
  plan.padding = runtime::Padding::Left;
  plan.vocabulary = valueOrThrow(runtime::vocabularyOf(model.graph()));
  return plan;
}

/// Feeds random tokens, the same for every stream of one seed.
class TokenStream {
public:
  TokenStream(const ir::Model& model, int64_t batchSize)
      : any(0, valueOrThrow(runtime::vocabularyOf(model.graph())) - 1), batch(batchSize) {}

  runtime::StepResult feed(runtime::Session& session, int64_t count) {
    runtime::DecoderStep step;
    step.pastLength = session.length();
    for (int64_t row = 0; row < batch; ++row) {
      step.tokens.emplace_back();
      for (int64_t i = 0; i < count; ++i)
        step.tokens.back().push_back(any(random));
    }
    return valueOrThrow(runtime::stepDecoder(session, step));
  }

private:
  std::mt19937_64 random{7};
  std::uniform_int_distribution<int64_t> any;
  int64_t batch;
};

/// The same tokens for every session of one length.
inline runtime::StepResult stepAlike(runtime::Session& session, int64_t count, int64_t seed = 1) {
  runtime::DecoderStep step;
  step.pastLength = session.length();
  for (int64_t row = 0; row < session.batch(); ++row) {
    step.tokens.emplace_back();
    for (int64_t i = 0; i < count; ++i)
      step.tokens.back().push_back((seed * 7 + row * 3 + (session.length() + i) * 5) % 60);
  }
  return valueOrThrow(runtime::stepDecoder(session, step));
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

  driver::Toolkit toolkit;
};

/// The models of models/; under sanitizers without the largest, which runs the code that the others
/// run.
inline auto shippedModels() {
  std::vector<ShippedModel> models = {
      {"llama_gqa-ts14-eager", 2}, {"gpt2-dynamo18-eager", 2}, {"qwen2-dynamo23-sdpa", 2}};
  if (!isSanitized)
    models.insert(models.begin(), {"kjv", 4});
  return testing::ValuesIn(models);
}

inline std::string shippedModelName(const testing::TestParamInfo<ShippedModel>& parameter) {
  std::string name = parameter.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

} // namespace kvopt
