// Conditions on a site for kvopt's in-place operators.
#pragma once

#include "ir/cache_layout.h"
#include "passes/targets/target.h"

namespace kvopt::targets {

/// Refusal of a site whose caches neither grow nor are only read. It is for targets that write only
/// such caches and would leave others unchanged. nullopt for any other site.
std::optional<pattern::MatchFailure> doesNotGrow(const analysis::AttentionSite& site);

/// Refusal of a site in a branch of the model, for targets that do not support branches; nullopt
/// for any other site.
std::optional<pattern::MatchFailure> standsInBranch(const analysis::AttentionSite& site);

/// Layout in which kvopt's in-place operators receive the cache: its own, or that of a view of it.
/// nullopt if they cannot find its rows. `transposable` says whether columns, instead of rows, may
/// be far apart.
std::optional<ir::CacheLayout> attendedLayout(const ir::CacheLayout& layout, bool transposable);

/// Number of slots of a ring that replaces the site's caches: the number of keys that a query sees,
/// if that is proved, or one more than the model itself keeps. 0 if a ring is not possible: for
/// caches that are shared or updated in branches, and for attention over all rows.
int64_t ringSlots(const analysis::AttentionSite& site);

/// nullopt if KvoptLowering can write the site; otherwise the reason. `asRing`: with a ring where
/// one is possible.
std::optional<pattern::MatchFailure> supportsKvoptSite(const analysis::AttentionSite& site,
                                                       bool asRing = false);

/// Fails if sites that are each supported cannot be lowered together: branches that share a cache,
/// or forms that need different function bodies. `asRings` as in supportsKvoptSite.
llvm::Error checkKvoptSites(llvm::ArrayRef<analysis::AttentionSite*> sites, bool asRings = false);

} // namespace kvopt::targets
