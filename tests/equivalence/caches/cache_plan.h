// The steps by which tests of caches compare models.
#pragma once

#include "runtime/equivalence/planned_steps.h"

namespace kvopt {

/// A prompt, two chunks and decode steps: nine steps, 15 tokens.
inline runtime::EquivalencePlan cachePlan(runtime::Tolerance tolerance = {0, 0}) {
  runtime::EquivalencePlan plan;
  plan.prompt = 5;
  plan.chunks = {3, 1};
  plan.decodeSteps = 6;
  plan.vocabulary = 50;
  plan.tolerance = tolerance;
  return plan;
}

/// Weights of decoder_text.h are at most 1, so logits of 16 sums of 16 stay below 2^8, where an ulp
/// is 2^-16.
inline constexpr runtime::Tolerance oneUlpOfLogits{0x1p-16, 0};

} // namespace kvopt
