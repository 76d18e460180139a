// Running of data sets.
#include "driver/verify/data_sets.h"

#include "driver/recover.h"
#include "driver/verify/report.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/json.h"

#include <algorithm>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

llvm::Expected<VerificationReport> verifyDataSets(const std::string& modelPath,
                                                  const std::string& folder,
                                                  const DataSetTolerance& tolerance,
                                                  unsigned threads, const Toolkit& toolkit) {
  auto sets = readDataSets(folder);
  if (!sets)
    return sets.takeError();
  auto model = openModel(modelPath, toolkit);
  if (!model)
    return model.takeError();
  if (llvm::Error error = inferShapes((*model)->graph()))
    return withFile(std::move(error), modelPath);
  ExecutorOptions options;
  options.threads = threads;
  auto executor = Executor::create(**model, toolkit.runner->kernels(), options);
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

} // namespace kvopt::driver
