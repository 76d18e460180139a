// Conditions for unused rows between an attention's past and its new rows.
#pragma once

#include "passes/analysis/cache/site.h"

namespace kvopt::targets {

/// Reason why unused rows cannot be placed between the past and the new rows of a site that grows;
/// nullopt if they can. BlockLowering checks all other conditions.
std::optional<pattern::MatchFailure> gapObstacle(const analysis::AttentionSite& site);

} // namespace kvopt::targets
