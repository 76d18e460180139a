// What the runs of a verification covered, and what they did not.
#pragma once

#include "driver/verify/runs.h"

namespace kvopt::driver {

/// What runs are measured by.
struct CoverageGoal {
  const ComparedModels& models;
  const VerificationPlan& plan;
  const std::vector<Landmark>& landmarks; ///< of both models
  int64_t capacity = INT64_MAX;           ///< of both models
  /// Tokens from which on the first model refuses steps: nothing beyond can be compared.
  int64_t refusedFrom = INT64_MAX;
};

/// Takes from the runs and steps of `report` which landmarks, variants and blocks they reached, and
/// completes `visited`, `variantsRun`, `neverRun`, `notCovered` and `limitedByMetadata`.
void noteCoverage(const CoverageGoal& goal, VerificationReport& report);

} // namespace kvopt::driver
