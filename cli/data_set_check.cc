// Running data sets and reporting them.
#include "cli/data_set_check.h"

#include "cli/recover.h"
#include "ir/diagnostic.h"
#include "ir/format.h"
#include "ir/shape_inference.h"

#include <algorithm>

namespace kvopt {

llvm::Expected<VerificationReport> verifyDataSets(const std::string& modelPath,
                                                  const std::string& folder,
                                                  const DataSetTolerance& tolerance,
                                                  unsigned threads, const Registries& registries) {
  auto sets = readDataSets(folder);
  if (!sets)
    return sets.takeError();
  auto model = openModel(modelPath, registries);
  if (!model)
    return model.takeError();
  if (llvm::Error error = inferShapes((*model)->graph()))
    return withFile(std::move(error), modelPath);
  ExecutorOptions options;
  options.threads = threads;
  auto executor = Executor::create(**model, registries.kernels, options);
  if (!executor)
    return withFile(executor.takeError(), modelPath);
  auto comparison = replayDataSets(**model, **executor, *sets, tolerance);
  if (!comparison)
    return comparison.takeError();
  VerificationReport report;
  report.comparison = std::move(*comparison);
  for (const Value* output : (*model)->graph().outputs()) {
    const Tolerance applied = tolerance.of(output->type().elementType());
    report.tolerance.absolute = std::max(report.tolerance.absolute, applied.absolute);
    report.tolerance.relative = std::max(report.tolerance.relative, applied.relative);
  }
  return report;
}

OrderedJson dataSetJson(const VerificationReport& report) {
  OrderedJson json = verificationJson(report);
  json["batch"] = nullptr;
  json["tokens_equal"] = nullptr;
  return json;
}

std::string dataSetSummary(const VerificationReport& report) {
  size_t outputs = 0;
  uint64_t maxUlp = 0;
  std::string mismatches;
  for (const StepComparison& step : report.comparison.steps) {
    outputs += step.outputs.size();
    for (const TensorComparison& tensor : step.outputs) {
      maxUlp = std::max(maxUlp, tensor.comparison.maxUlp);
      if (!tensor.mismatch.empty())
        mismatches += fmt::format("\n  {}: '{}' {}", step.phase, tensor.name, tensor.mismatch);
    }
  }
  const TensorComparison* worst = report.comparison.worst();
  const std::string text =
      fmt::format("{} data set{}   {} output{}   max abs {:.1e}   max ulp {}",
                  report.comparison.steps.size(), report.comparison.steps.size() == 1 ? "" : "s",
                  outputs, outputs == 1 ? "" : "s", worst ? worst->comparison.maxAbs : 0.0, maxUlp);
  if (report.equal())
    return text + "   OK";
  if (!worst)
    return text + "   DIFFERENT: nothing was compared";
  return text + fmt::format("   DIFFERENT: worst is '{}'", worst->name) + mismatches;
}

} // namespace kvopt
