// The runs of a verification, one after the other.
#pragma once

#include "driver/verify/verification.h"

namespace kvopt::driver {

/// Two models with inferred shapes, and how to drive them.
struct ComparedModels {
  const ir::Model& a;
  const ir::Manifest& manifestA;
  const ir::Model& b;
  const ir::Manifest& manifestB;
  /// What `b` is fed of an encoded sequence is computed by; null where nothing is.
  const ir::Model* firstOfB = nullptr;
  /// The first model with all numbers in f32, and what the first one rounds to; null without.
  const PreparedModel* twin = nullptr;
  double unitRoundoff = 0;
};

/// Runs the plan as far as the models take it, and says what that leaves uncovered.
llvm::Expected<VerificationReport> runVerification(const ComparedModels& models,
                                                   const VerificationPlan& plan, unsigned threads,
                                                   const Toolkit& toolkit);

} // namespace kvopt::driver
