// Groups of attention layers that differ only in names, as explain prints them.
#pragma once

#include "driver/recover.h"

namespace kvopt::driver {

struct SiteGroup {
  /// The layer that represents the group.
  const analysis::AttentionSite* first = nullptr;
  std::vector<unsigned> layers;   ///< ascending
  std::vector<std::string> nodes; ///< one node per layer
  /// The reason that the target refuses the layers; nullopt if it accepts them or if there is no
  /// target.
  std::optional<pattern::MatchFailure> refusal;
};

/// A key that is equal for failures that differ only in the layer numbers within names.
std::string failureKey(const pattern::MatchFailure& failure);

/// Groups of layers with equal facts, rule and reason, in the order of their first layers. `target`
/// may be null; `layer` selects a single layer.
std::vector<SiteGroup> groupSites(const RecoveredModel& recovered, const targets::Target* target,
                                  std::optional<unsigned> layer);

} // namespace kvopt::driver
