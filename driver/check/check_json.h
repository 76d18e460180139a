// Results of a check as JSON.
#pragma once

#include "driver/check/check_files.h"
#include "driver/check/counterexample.h"
#include "support/json_fwd.h"

namespace kvopt::driver {

/// The part of a report that does not depend on the fields: verdicts of outputs, scope and
/// assumptions.
OrderedJson shownJson(const check::CheckReport& report);
/// Verdicts, regions, scope and assumptions, without the files.
OrderedJson checkReportJson(const check::CheckReport& report);
/// The document kvopt/check/1, with the replay of a difference if there is one.
OrderedJson checkJson(const FileCheck& result, const std::optional<Counterexample>& example);
/// The document kvopt/certificate/1.
OrderedJson certificateJson(const FileCheck& result);

} // namespace kvopt::driver
