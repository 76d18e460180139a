// What targets need of attention whose caches become codes.
#pragma once

#include "passes/targets/kvopt/kvopt_lowering.h"

namespace kvopt::targets {

/// nullopt if KvoptLowering can write the site with the form's codes, otherwise why not.
std::optional<pattern::MatchFailure> supportsQuantizedSite(const analysis::AttentionSite& site,
                                                           const CacheForm& form);

} // namespace kvopt::targets
