// How far outputs are off those of another model that computes with more digits.
#pragma once

#include "runtime/session/session.h"

namespace kvopt::driver {

struct Deviation {
  /// Largest difference of the outputs from the original's, and largest magnitude of those.
  double largest = 0;
  double magnitude = 0;
  /// Most likely next tokens, of every row of every step, and how many of them are the original's.
  int64_t tokens = 0;
  int64_t tokensAlike = 0;

  /// Takes a step of both models into account, of so many batch rows.
  llvm::Error add(const runtime::StepResult& original, const runtime::StepResult& other,
                  int64_t rows);
};

/// The largest magnitude of the finite elements of a view of float, float16 or bfloat16.
double largestMagnitude(const runtime::TensorView& view);

} // namespace kvopt::driver
