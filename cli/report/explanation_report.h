// What kvopt explain prints.
#pragma once

#include "cli/support/style.h"
#include "driver/explain/explanation.h"
#include "support/json.h"

namespace kvopt::cli {

/// The document kvopt/explain/1 of the model at `path`.
OrderedJson explanationJson(const std::string& path, const driver::Explanation& explanation);

/// The same for people; long masks are shortened. Near misses of rules are only in `detailed` text.
SafeText explanationText(const std::string& path, const driver::Explanation& explanation,
                         const Style& style, bool detailed);

} // namespace kvopt::cli
