// Attention over several sets of keys, such as a cache and the new rows.
#pragma once

#include "ir/graph.h"
#include "passes/pattern/reason.h"

#include <optional>

namespace kvopt::analysis {

/// A failure if the softmax spans the joined scores of several sets of keys, each from a separate
/// product; nullopt otherwise.
std::optional<pattern::MatchFailure> keysInParts(const ir::Node& softmax);

} // namespace kvopt::analysis
