// Words for the facts of sites in `inspect` and in output that is compared with it.
#pragma once

#include "passes/analysis/cache/site.h"

namespace kvopt::analysis {

/// `cross`, `self` if earlier steps are read, otherwise `none`.
llvm::StringRef siteKindName(const AttentionSite& site);

/// `growing`, `latent`, `static`, `ring`, `cross`, or `none` without a proved cache.
llvm::StringRef sitePolicyName(const AttentionSite& site);
llvm::StringRef sitePolicyName(ir::CacheUpdate update);

} // namespace kvopt::analysis
