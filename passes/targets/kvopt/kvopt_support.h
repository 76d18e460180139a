// What sites kvopt's in-place operators can take.
#pragma once

#include "passes/targets/target.h"

namespace kvopt::targets {

/// The refusal of a site whose caches are neither grown nor only read: a target that leaves them as
/// they are would still copy them at every step. nullopt for any other site.
std::optional<pattern::MatchFailure> staysCopied(const analysis::AttentionSite& site);

/// nullopt if KvoptLowering can write the site, otherwise why not.
std::optional<pattern::MatchFailure> supportsKvoptSite(const analysis::AttentionSite& site);

/// Fails where sites that are supported each cannot be lowered together: branches that share a
/// cache, forms that need different function bodies.
llvm::Error checkKvoptSites(llvm::ArrayRef<analysis::AttentionSite*> sites);

} // namespace kvopt::targets
