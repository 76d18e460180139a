// Reports of data sets.
#include "cli/running/data_set_report.h"

#include "support/format.h"

#include <algorithm>

namespace kvopt::cli {
using namespace driver;
using namespace runtime;

std::string dataSetSummary(const VerificationReport& report) {
  size_t outputs = 0;
  std::string mismatches;
  for (const StepComparison& step : report.comparison.steps) {
    outputs += step.outputs.size();
    for (const TensorComparison& tensor : step.outputs)
      if (!tensor.mismatch.empty())
        mismatches += formatted("\n  {}: '{}' {}", step.phase, tensor.name, tensor.mismatch);
  }
  const TensorComparison* worst = report.comparison.worst();
  const std::string verdict = report.equal() ? "OK"
                              : worst        ? formatted("DIFFERENT: worst is '{}'", worst->name)
                                             : "DIFFERENT: nothing was compared";
  return formatted("{}: {} data set{}; {} output{}; largest difference {:.1e}{}", verdict,
                   report.comparison.steps.size(), report.comparison.steps.size() == 1 ? "" : "s",
                   outputs, outputs == 1 ? "" : "s", worst ? worst->comparison.maxAbs : 0.0,
                   mismatches);
}

} // namespace kvopt::cli
