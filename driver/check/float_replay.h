// Replays of differences: one step of two models, in floats.
#pragma once

#include "check/checker.h"
#include "driver/toolkit.h"
#include "driver/verify/verification.h"
#include "runtime/equivalence/reference_steps.h"

#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace kvopt::driver {

/// The result of a replay.
struct FloatReplay {
  /// Whether floats show a difference; nullopt if the models cannot be compared.
  std::optional<bool> isVisible;
  /// The largest difference, or the reason that nothing is compared.
  std::string remark;
};

/// The inputs of the first model in a step. Integers and masks are those of the check with this
/// seed; other numbers are random and always the same. Fails if an element type is not supported.
llvm::Expected<runtime::ReferenceStep> floatInputs(const check::DrivenModel& before,
                                                   const check::DrivenModel& after,
                                                   const check::Step& step, unsigned seed);

/// Runs a model with recorded inputs, and adds its outputs to the recording.
llvm::Error addOutputs(const ir::Model& model, runtime::ReferenceStep& recorded,
                       const Toolkit& toolkit);

/// Compares a model with a recorded step, as `kvopt verify --reference` does.
FloatReplay replayStep(const PreparedModel& after, const runtime::ReferenceStep& recorded,
                       const Toolkit& toolkit);

/// Replays the step of the first element that differs, and the same step without earlier tokens if
/// the former cannot be run. Where floats do not show the difference, and where the
/// models cannot be run or are large, no such output is different any more: it is not decided, and
/// its reason says why. Outputs that are missing, or have other types or shapes, stay different.
void confirmDifference(check::CheckReport& report, const check::DrivenModel& before,
                       const check::DrivenModel& after, const Toolkit& toolkit);

} // namespace kvopt::driver
