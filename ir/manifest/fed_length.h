// Values of inputs that count tokens.
#pragma once

#include "ir/manifest/manifest.h"

#include <optional>

namespace kvopt::ir {

/// Value of a length input at a step that adds `tokens` tokens after `past` earlier ones; flags are
/// 0 or 1. nullopt for a block table, which is not a single number.
std::optional<int64_t> fedLength(LengthFeed feed, int64_t past, int64_t tokens);

} // namespace kvopt::ir
