// Conditions on a site for targets that keep only the rows that attention reads.
#pragma once

#include "passes/targets/target.h"

namespace kvopt::targets {

/// Implements Target::changesPadding for targets that write rings.
bool ringChangesPadding(const analysis::AttentionSite& site);

/// Reason why the caches of a site cannot become rings (ringSlots), although another form is
/// possible.
pattern::MatchFailure noRing(const analysis::AttentionSite& site);

} // namespace kvopt::targets
