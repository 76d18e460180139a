// Reports of data sets.
#include "cli/report/data_set_report.h"

#include "driver/verify/report.h"
#include "support/format.h"

#include <algorithm>

namespace kvopt::cli {
using namespace driver;
using namespace runtime;

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

} // namespace kvopt::cli
