// Scope: the steps in which regions are compared.
#pragma once

#include "check/caches/feeding.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace kvopt::check {

/// The largest number of all tokens for which both models have room, if the scope has the steps at
/// this limit; nullopt for models without a limit, or with a larger one.
std::optional<int64_t> lengthLimit(const DrivenModel& before, const DrivenModel& after);

/// All steps of the scope: batches of 1 to 3, 0 to 4 earlier and 1 to 4 new tokens, padding on
/// either side, and lengths around the edges of blocks, windows, rings and capacities. Sorted by
/// size. Leaves out steps for which a buffer has no room or that the first model's manifest or a
/// fixed extent excludes, and notes why in `leftOut`. Steps that only the second model's manifest
/// excludes are marked.
/// Adds to `covered` the constants of comparisons (comparedConstants) around which it has steps.
std::vector<Step> scopeOf(const DrivenModel& before, const DrivenModel& after,
                          std::vector<std::string>& leftOut, std::set<int64_t>& covered);

} // namespace kvopt::check
