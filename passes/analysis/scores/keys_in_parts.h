// Attention whose keys come in several sets, such as a cache and the new rows.
#pragma once

#include "ir/graph.h"
#include "passes/pattern/reason.h"

#include <optional>

namespace kvopt::analysis {

/// Whether the softmax runs over the joined scores of several sets of keys, each a product of its
/// own; nullopt if not.
std::optional<pattern::MatchFailure> keysInParts(const ir::Node& softmax);

} // namespace kvopt::analysis
