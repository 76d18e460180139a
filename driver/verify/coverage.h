// Coverage of the runs of a verification.
#pragma once

#include "driver/verify/runs.h"

namespace kvopt::driver {

/// The goal against which the coverage of runs is measured.
struct CoverageGoal {
  const ComparedModels& models;
  const VerificationPlan& plan;
  const std::vector<Landmark>& landmarks; ///< joined from both models
  int64_t capacity = INT64_MAX;           ///< the smaller one of both models
  /// Number of tokens from which on the first model refuses steps; no step beyond it can be
  /// compared.
  int64_t refusedFrom = INT64_MAX;
};

/// Determines the landmarks, variants and blocks that the runs and steps of `report` reached, and
/// completes `visited`, `variantsRun`, `neverRun`, `notCovered` and `limitedByMetadata`.
void noteCoverage(const CoverageGoal& goal, VerificationReport& report);

} // namespace kvopt::driver
