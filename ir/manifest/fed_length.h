// The numbers that inputs which count tokens are fed.
#pragma once

#include "ir/manifest/manifest.h"

#include <optional>

namespace kvopt::ir {

/// What a length is fed at a step of so many tokens after `past` earlier ones; flags are 0 or 1.
/// nullopt for a block table, which is no number.
std::optional<int64_t> fedLength(LengthFeed feed, int64_t past, int64_t tokens);

} // namespace kvopt::ir
