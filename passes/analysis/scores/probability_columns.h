// Parts of the probabilities that attention gives keys.
#pragma once

#include "ir/graph.h"

#include <optional>

namespace kvopt::analysis {

/// Columns [start, end) of a tensor, counted from its first one.
struct ColumnRange {
  ir::Dim start;
  ir::Dim end;
};

/// The columns that `columns` are of what its node cuts; nullopt where that is not a range of the
/// last axis, or where its ends are not known.
std::optional<ColumnRange> columnRange(const ir::Value& columns);

} // namespace kvopt::analysis
