// Conditions on attention whose caches become quantized.
#pragma once

#include "passes/targets/kvopt/kvopt_lowering.h"

namespace kvopt::targets {

/// nullopt if KvoptLowering can write the site with quantized rows of the given form; otherwise the
/// reason.
std::optional<pattern::MatchFailure> supportsQuantizedSite(const analysis::AttentionSite& site,
                                                           const CacheForm& form);

} // namespace kvopt::targets
