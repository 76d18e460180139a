// What targets that keep no more rows than attention reads ask of a site.
#pragma once

#include "passes/targets/target.h"

namespace kvopt::targets {

/// Target::changesPadding of a target that writes rings.
bool ringChangesPadding(const analysis::AttentionSite& site);

/// Why the caches of a site become no ring (ringSlots), although they could be written otherwise.
pattern::MatchFailure noRing(const analysis::AttentionSite& site);

} // namespace kvopt::targets
