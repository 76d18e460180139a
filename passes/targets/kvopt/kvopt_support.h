// What sites kvopt's in-place operators can take.
#pragma once

#include "ir/cache_layout.h"
#include "passes/targets/target.h"

namespace kvopt::targets {

/// The refusal of a site whose caches are neither grown nor only read, for targets that write
/// nothing else: they would leave such caches as they are. nullopt for any other site.
std::optional<pattern::MatchFailure> doesNotGrow(const analysis::AttentionSite& site);

/// The layout in which kvopt's in-place operators are given the cache: its own, or that of a view
/// of it. nullopt where they cannot find its rows. `transposable` says whether columns, not rows,
/// may be far apart.
std::optional<ir::CacheLayout> attendedLayout(const ir::CacheLayout& layout, bool transposable);

/// nullopt if KvoptLowering can write the site, otherwise why not.
std::optional<pattern::MatchFailure> supportsKvoptSite(const analysis::AttentionSite& site);

/// Fails where sites that are supported each cannot be lowered together: branches that share a
/// cache, forms that need different function bodies.
llvm::Error checkKvoptSites(llvm::ArrayRef<analysis::AttentionSite*> sites);

} // namespace kvopt::targets
