// Sites that differ in nothing but their names, as explain prints them.
#pragma once

#include "driver/recover.h"

namespace kvopt::driver {

struct SiteGroup {
  /// Stands for all of them.
  const analysis::AttentionSite* first = nullptr;
  std::vector<unsigned> layers;   ///< ascending
  std::vector<std::string> nodes; ///< the sites' nodes, one a layer
  /// Why the target does not take them; only where a target is asked.
  std::optional<pattern::MatchFailure> refusal;
};

/// What is the same for failures that differ in nothing but the numbers in names, which layers
/// have.
std::string failureKey(const pattern::MatchFailure& failure);

/// Groups by facts, rule and reason, in the order of their first sites. `target` may be null;
/// `layer` chooses one site.
std::vector<SiteGroup> groupSites(const RecoveredModel& recovered, const targets::Target* target,
                                  std::optional<unsigned> layer);

} // namespace kvopt::driver
