// Confirmation of differences: exact arithmetic finds some that floats do not show.
#pragma once

#include "check/checker.h"
#include "driver/toolkit.h"

#include <optional>
#include <string>

namespace kvopt::driver {

/// The result of running a step of two models in floats (Runner::replay).
struct FloatReplay {
  /// Whether floats show a difference; nullopt if the models cannot be compared.
  std::optional<bool> isVisible;
  /// The largest difference, or the reason that nothing is compared.
  std::string remark;
};

/// Replays the step of the first element that differs, and the same step without earlier tokens if
/// the former cannot be run. No such output is different any more where floats do not show the
/// difference, where the models cannot be run or are large, and in a build without the runtime: it
/// is not decided, and its reason says why. Outputs that are missing, or have other types or
/// shapes, stay different.
void confirmDifference(check::CheckReport& report, const check::DrivenModel& before,
                       const check::DrivenModel& after, const Toolkit& toolkit);

} // namespace kvopt::driver
