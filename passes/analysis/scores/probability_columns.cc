// Ranges of the last axis, from a Slice or a Split.
#include "passes/analysis/scores/probability_columns.h"

#include "ir/movement.h"

#include <limits>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// An index into an axis of that extent, counted from its start.
Dim placeOf(const Dim& index, const Dim& extent) {
  const std::optional<int64_t> known = index.value();
  if (known && *known > std::numeric_limits<int32_t>::max() / 2)
    return extent;
  return known && *known < 0 ? extent + index : index;
}

} // namespace

std::optional<ColumnRange> columnRange(const Value& columns) {
  const Node* node = columns.producer();
  const auto movement = node ? movementOf(columns) : std::nullopt;
  const Value* all = movement && movement->is(MovementKind::Slice) ? movedOperand(*node) : nullptr;
  if (!all || !all->type().hasRank() || movement->axis() != all->type().rank() - 1 ||
      movement->ranges.front().step.known.value() != 1)
    return std::nullopt;
  const Dim extent = all->type().dim(-1);
  const MovementRange& range = movement->ranges.front();
  ColumnRange found{placeOf(range.start.known, extent), placeOf(range.end.known, extent)};
  if (found.start.isUnknown() || found.end.isUnknown())
    return std::nullopt;
  return found;
}

} // namespace kvopt::analysis
