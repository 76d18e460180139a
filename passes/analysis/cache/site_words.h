// How inspect, and what compares with it, spells the facts of sites.
#pragma once

#include "passes/analysis/cache/site.h"

namespace kvopt::analysis {

/// `cross`, `self` where earlier steps are read, `none` where neither is so.
llvm::StringRef siteKindName(const AttentionSite& site);

/// `growing`, `latent`, `static`, `ring`, `cross`, or `none` without a cache that is proved.
llvm::StringRef sitePolicyName(const AttentionSite& site);
llvm::StringRef sitePolicyName(ir::CacheUpdate update);

} // namespace kvopt::analysis
