// What sites kvopt's in-place operators can take.
#pragma once

#include "ir/cache_layout.h"
#include "passes/targets/target.h"

namespace kvopt::targets {

/// The refusal of a site whose caches are neither grown nor only read, for targets that write
/// nothing else: they would leave such caches as they are. nullopt for any other site.
std::optional<pattern::MatchFailure> doesNotGrow(const analysis::AttentionSite& site);

/// The refusal of a site that stands in a branch of the model, for targets that take none there;
/// nullopt for any other site.
std::optional<pattern::MatchFailure> standsInBranch(const analysis::AttentionSite& site);

/// The layout in which kvopt's in-place operators are given the cache: its own, or that of a view
/// of it. nullopt where they cannot find its rows. `transposable` says whether columns, not rows,
/// may be far apart.
std::optional<ir::CacheLayout> attendedLayout(const ir::CacheLayout& layout, bool transposable);

/// How many slots a ring needs that takes the place of the site's caches: as many as a query sees
/// keys, where that is proved, or one more than the model itself keeps. 0 where no ring can: caches
/// that are shared or updated in branches, and attention over all rows.
int64_t ringSlots(const analysis::AttentionSite& site);

/// nullopt if KvoptLowering can write the site, otherwise why not. `asRing`: with a ring where
/// there may be one.
std::optional<pattern::MatchFailure> supportsKvoptSite(const analysis::AttentionSite& site,
                                                       bool asRing = false);

/// Fails where sites that are supported each cannot be lowered together: branches that share a
/// cache, forms that need different function bodies. `asRings` as in supportsKvoptSite.
llvm::Error checkKvoptSites(llvm::ArrayRef<analysis::AttentionSite*> sites, bool asRings = false);

} // namespace kvopt::targets
