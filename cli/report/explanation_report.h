// Output of kvopt explain.
#pragma once

#include "cli/support/style.h"
#include "driver/explain/explanation.h"

namespace kvopt::cli {

/// The explanation of the model at `path`, for people; long masks are shortened. Near misses of
/// rules are only in `detailed` text.
SafeText explanationText(const std::string& path, const driver::Explanation& explanation,
                         const Style& style, bool detailed);

} // namespace kvopt::cli
