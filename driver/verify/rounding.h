// Effect of rounding cache rows to a narrower type.
#pragma once

#include "driver/toolkit.h"
#include "driver/verify/deviation.h"
#include "runtime/equivalence/equivalence.h"

namespace kvopt::driver {

/// Comparison of a model with rounded cache rows and the same model without rounding
/// (`keepExportedRows`), which computes the same as the original.
struct RoundingReport {
  size_t caches = 0;
  size_t steps = 0;
  ir::ElementType dtype = ir::ElementType::Undefined;
  Deviation deviation;
  /// Limit of the deviation, relative to the magnitude of the outputs or to 1.
  double allowed = 0;

  double relative() const { return deviation.largest / std::max(1.0, deviation.magnitude); }
  /// NaN is not within any limit.
  bool equal() const { return steps != 0 && relative() <= allowed; }
};

/// Runs both models through steps of these numbers of tokens. Types of both must have been
/// inferred.
llvm::Expected<RoundingReport>
checkRounding(const ir::Model& plain, const ir::Manifest& plainManifest, const ir::Model& rounded,
              const ir::Manifest& roundedManifest, const runtime::EquivalencePlan& plan,
              llvm::ArrayRef<int64_t> steps, unsigned threads, const Toolkit& toolkit);

} // namespace kvopt::driver
