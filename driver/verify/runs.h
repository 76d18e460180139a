// The runs of a verification, one after the other.
#pragma once

#include "driver/verify/verification.h"

namespace kvopt::driver {

/// Two models with inferred shapes, and the manifests that drive them.
struct ComparedModels {
  const ir::Model& a;
  const ir::Manifest& manifestA;
  const ir::Model& b;
  const ir::Manifest& manifestB;
  /// The model that computes the encoder's results for `b`; null if there is none.
  const ir::Model* firstOfB = nullptr;
  /// The first model with all numbers in f32, for measuring its own rounding; null if there is
  /// none.
  const PreparedModel* twin = nullptr;
  double unitRoundoff = 0;
};

/// Runs the plan as far as the models accept it, and reports what remains uncovered.
llvm::Expected<VerificationReport> runVerification(const ComparedModels& models,
                                                   const VerificationPlan& plan, unsigned threads,
                                                   const Toolkit& toolkit);

} // namespace kvopt::driver
