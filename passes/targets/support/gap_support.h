// What keeps an attention from having rows that are no tokens between its past and its new rows.
#pragma once

#include "passes/analysis/cache/site.h"

namespace kvopt::targets {

/// Why rows that are no tokens cannot stand between those of the past and the new ones of a site
/// that grows; nullopt where they can. Everything else is BlockLowering's business.
std::optional<pattern::MatchFailure> gapObstacle(const analysis::AttentionSite& site);

} // namespace kvopt::targets
