// Deviation of outputs from those of another model that computes more precisely.
#pragma once

#include "runtime/session/session.h"

namespace kvopt::driver {

struct Deviation {
  /// Largest difference between the outputs and the original's, and largest magnitude of the
  /// original's.
  double largest = 0;
  double magnitude = 0;
  /// Number of most likely next tokens, over all rows and steps, and the number that agree with the
  /// original's.
  int64_t tokens = 0;
  int64_t tokensAlike = 0;

  /// Adds a step of both models with this number of batch rows.
  llvm::Error add(const runtime::StepResult& original, const runtime::StepResult& other,
                  int64_t rows);
};

/// The largest magnitude of the finite elements of a view of float, float16 or bfloat16.
double largestMagnitude(const runtime::TensorView& view);

} // namespace kvopt::driver
