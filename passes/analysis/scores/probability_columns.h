// Column ranges of attention probabilities.
#pragma once

#include "ir/graph.h"

#include <optional>

namespace kvopt::analysis {

/// Columns [start, end) of a tensor, counted from its first.
struct ColumnRange {
  ir::Dim start;
  ir::Dim end;
};

/// The range of columns that `columns` selects from the operand of its node; nullopt if it is not a
/// range of the last axis, or if its ends are unknown.
std::optional<ColumnRange> columnRange(const ir::Value& columns);

} // namespace kvopt::analysis
