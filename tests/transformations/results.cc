// Running subjects before and after.
#include "driver/verify/report.h"
#include "ir/onnx/import.h"
#include "ir/shapes/shape_inference.h"
#include "passes/targets/target.h"
#include "runtime/equivalence/reference.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "tests/transformations/subject.h"

#include <algorithm>
#include <cmath>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace runtime;
using namespace targets;

namespace {

/// How far apart two tensors may be, by the largest number of the first.
Tolerance toleranceOf(Rounding rounding, const TensorView& expected) {
  if (rounding == Rounding::Same)
    return {0, 0};
  double largest = 1;
  if (expected.element == ElementType::Float && expected.isContiguous())
    for (int64_t i = 0; i < expected.elementCount(); ++i)
      if (const double number = std::abs(expected.as<float>()[i]);
          std::isfinite(number) && number < 1e30)
        largest = std::max(largest, number);
  // Some tens of roundings of 2^-24 or 2^-11 in a row.
  if (expected.element != ElementType::Float && rounding == Rounding::Reordered)
    rounding = Rounding::Narrow;
  return {(rounding == Rounding::Narrow ? 2e-2 : 1e-5) * largest, 0};
}

struct Run {
  std::vector<Tensor> outputs;
  std::string error; ///< of what does not run
};

Run runStep(Executor& executor, const Graph& graph, const ReferenceStep& step,
            const TransformedModel* transformed) {
  Run run;
  std::vector<Tensor> tensors;
  std::vector<NamedView> views;
  tensors.reserve(step.inputs.size());
  for (const auto& [name, data] : step.inputs) {
    const Value* input = graph.findValue(transformed ? transformed->nameOf(name) : name);
    if (!input || !input->isGraphInput())
      continue;
    auto tensor = Tensor::of(executor.allocator(), data);
    if (!tensor) {
      run.error = takeDiagnostic(tensor.takeError()).str();
      return run;
    }
    tensors.push_back(std::move(*tensor));
    views.push_back({input->name(), tensors.back().view});
  }
  auto outputs = executor.run(views);
  if (outputs)
    run.outputs = std::move(*outputs);
  else
    run.error = takeDiagnostic(outputs.takeError()).str();
  return run;
}

size_t slotOf(const Graph& graph, llvm::StringRef name) {
  for (size_t slot = 0; slot < graph.outputs().size(); ++slot)
    if (graph.outputs()[slot]->name() == name)
      return slot;
  return graph.outputs().size();
}

llvm::Expected<std::string> stepDifference(const Model& original, Executor& before,
                                           const TransformedModel& transformed, Executor& after,
                                           const ReferenceStep& step, Rounding rounding) {
  const Graph& graph = transformed.model->graph();
  Run expected = runStep(before, original.graph(), step, nullptr);
  Run found = runStep(after, graph, step, &transformed);
  // What a model refuses before it is transformed it may refuse after.
  if (!expected.error.empty() || !found.error.empty())
    return expected.error.empty() ? "does not run: " + found.error : "";
  for (size_t slot = 0; slot < expected.outputs.size(); ++slot) {
    const std::string name = original.graph().outputs()[slot]->name().str();
    const size_t other = slotOf(graph, transformed.nameOf(name));
    if (other == graph.outputs().size())
      return formatted("no output is named '{}'", name);
    const TensorView& a = expected.outputs[slot].view;
    const TensorView& b = found.outputs[other].view;
    auto comparison = compareTensors(b, a, toleranceOf(rounding, a));
    if (!comparison)
      return comparison.takeError();
    if (!comparison->isWithin())
      return formatted("output '{}' differs by {}", name, comparison->maxAbs);
  }
  return "";
}

llvm::Expected<Manifest> manifestFor(const Model& model, const Toolkit& toolkit) {
  auto raised = raise(model, toolkit);
  if (!raised)
    return raised.takeError();
  Manifest manifest =
      exportedManifest(raised->model->graph(), raised->context->sites, raised->context->interface);
  raised->context->history.undo(manifest);
  addReorder(raised->model->graph(), raised->context->reorder, manifest);
  return manifest;
}

/// A few steps of each kind.
EquivalencePlan briefPlan() {
  EquivalencePlan plan;
  plan.prompt = 9;
  plan.chunks = {4};
  plan.decodeSteps = 3;
  plan.batch = 1;
  return plan;
}

llvm::Expected<std::string> sessionDifference(const Model& a, const Manifest& manifestA,
                                              const Model& b, const Manifest& manifestB,
                                              const Toolkit& toolkit,
                                              Rounding rounding = Rounding::Same) {
  EquivalencePlan plan = briefPlan();
  plan.tolerance =
      rounding == Rounding::Narrow ? Tolerance{5e-2, 5e-2} : toleranceFor(a.graph(), 2);
  auto report = verifyModels(a, manifestA, b, manifestB, plan, 1, toolkit);
  if (report)
    return report->equal() ? "" : verificationSummary(*report);
  // A model that takes no step by itself cannot be compared.
  if (report.errorIsA<OriginalRefusal>()) {
    llvm::consumeError(report.takeError());
    return "";
  }
  return report.takeError();
}

} // namespace

llvm::Expected<std::string> resultDifference(const Subject& subject,
                                             const TransformedModel& transformed, Rounding rounding,
                                             const Toolkit& toolkit) {
  if (rounding == Rounding::Quantized)
    return "";
  auto original = importModel(subject.file, toolkit.ops);
  if (!original)
    return original.takeError();
  auto copy = cloneModel(*transformed.model, toolkit);
  if (!copy)
    return copy.takeError();
  for (Model* model : {original->get(), copy->get()})
    if (llvm::Error error = inferShapes(model->graph()))
      return error;
  if (subject.steps.empty()) {
    // Sessions compare outputs by name.
    for (Value* output : (*copy)->graph().outputs())
      for (const auto& [name, now] : transformed.renamed)
        if (output->name() == now && !output->isGraphInput())
          (*copy)->graph().rename(*output, name);
    auto manifest = manifestFor(**original, toolkit);
    if (!manifest)
      return manifest.takeError();
    auto manifestAfter = manifestFor(**copy, toolkit);
    if (!manifestAfter)
      return manifestAfter.takeError();
    return sessionDifference(**original, *manifest, **copy, *manifestAfter, toolkit, rounding);
  }
  ExecutorOptions options;
  options.threads = 1;
  auto before = Executor::create(**original, toolkit.runner->kernels(), options);
  if (!before)
    return before.takeError();
  auto after = Executor::create(**copy, toolkit.runner->kernels(), options);
  if (!after)
    return after.takeError();
  auto steps = readReference(subject.steps);
  if (!steps)
    return steps.takeError();
  // A prefill, a decode step, and the last one, which adds several tokens to a past.
  for (size_t step : {size_t{0}, size_t{1}, steps->size() - 1}) {
    if (step >= steps->size())
      continue;
    auto difference =
        stepDifference(**original, **before, transformed, **after, (*steps)[step], rounding);
    if (!difference || !difference->empty())
      return difference;
  }
  return "";
}

llvm::Expected<std::string> rewriteDifference(const Model& model, const Toolkit& toolkit) {
  auto original = cloneModel(model, toolkit);
  if (!original)
    return original.takeError();
  if (llvm::Error error = inferShapes((*original)->graph()))
    return error;
  auto manifest = manifestFor(model, toolkit);
  if (!manifest)
    return manifest.takeError();
  auto rewritten = cloneModel(model, toolkit);
  if (!rewritten)
    return rewritten.takeError();
  PassContext context(toolkit.rules, toolkit.targets);
  PassManager manager(toolkit.passes, {});
  if (llvm::Error error = manager.addPipeline("restore-caches," + std::string(recoveryPipeline) +
                                              ",lower{to=kvopt require=any},eliminate-dead-nodes"))
    return error;
  if (llvm::Error error = manager.run(**rewritten, context))
    return error;
  if (!context.manifest)
    return "";
  // As it is written and read.
  auto written = cloneModel(**rewritten, toolkit);
  if (!written)
    return written.takeError();
  if (llvm::Error error = inferShapes((*written)->graph()))
    return error;
  return sessionDifference(**original, *manifest, **written, *context.manifest, toolkit);
}

} // namespace kvopt
