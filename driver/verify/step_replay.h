// Replays of differences: one step of two models, in floats.
#pragma once

#include "check/checker.h"
#include "driver/check/confirmation.h"
#include "driver/toolkit.h"
#include "driver/verify/verification.h"
#include "runtime/equivalence/reference_steps.h"

#include "llvm/Support/Error.h"

namespace kvopt::driver {

/// The inputs of the first model in a step. Integers and masks are those of the check with this
/// seed; other numbers are random and always the same. Fails if an element type is not supported.
llvm::Expected<runtime::ReferenceStep> floatInputs(const check::DrivenModel& before,
                                                   const check::DrivenModel& after,
                                                   const check::Step& step, unsigned seed);

/// Runs a model with recorded inputs, and adds its outputs to the recording.
llvm::Error addOutputs(const ir::Model& model, runtime::ReferenceStep& recorded,
                       const Toolkit& toolkit);

/// Compares a model with a recorded step, as `kvopt verify --reference` does.
FloatReplay replayRecorded(const PreparedModel& after, const runtime::ReferenceStep& recorded,
                           const Toolkit& toolkit);

/// Runs the first model in a step, and compares the second one with it, unless they are large.
FloatReplay replayStep(const check::DrivenModel& before, const check::DrivenModel& after,
                       const check::Step& step, unsigned seed, const Toolkit& toolkit);

} // namespace kvopt::driver
