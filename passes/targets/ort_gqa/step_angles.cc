// Selection of the columns and batch rows of a table.
#include "passes/targets/ort_gqa/step_angles.h"

namespace kvopt::targets {
using namespace analysis;
using namespace builders;
using namespace ir;

Value& angleTable(const ColumnRange& columns, int64_t pairs, TableRows rows,
                  AttentionBuilder& build) {
  Value* range = columns.value;
  if (rows == TableRows::FirstBatchRow && range->type().dim(0).value() != 1)
    range = &build.slice(*range, 0, 0, 1);
  if (const auto width = range->type().dim(3).value(); width != pairs) {
    const int64_t end = columns.first + (pairs - 1) * columns.step + 1;
    range = &build.node(
        "Slice", {*range, ints({columns.first}), ints({end}), ints({3}), ints({columns.step})}, {},
        "columns");
  }
  return build.node("Reshape", {*range, ints({-1, pairs})}, {}, "angles");
}

} // namespace kvopt::targets
