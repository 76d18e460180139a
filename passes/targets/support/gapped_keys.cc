// Columns of keys with a gap; the builder shares them between layers.
#include "passes/targets/support/gapped_keys.h"

#include "passes/targets/support/key_visibility.h"

namespace kvopt::targets {
using namespace builders;
using namespace ir;

namespace {

/// Contents of each column: all [past_rows+S].
struct Columns {
  Value* isKey;    ///< bool
  Value* position; ///< int64: position of the key, if there is one
};

Columns columnsOf(const GappedKeys& keys, Value& query, AttentionBuilder& build) {
  Value& count =
      build.node("Add", {*keys.pastRows, build.extent(query, 2)}, {}, "past_and_new_rows");
  Value& column =
      build.range(build.node("Reshape", {count, int64Tensor({})}, {}, "past_and_new_rows"));
  Value& isPast = build.node("Less", {column, *keys.pastLength}, {}, "is_past");
  Value& isNew = build.node("GreaterOrEqual", {column, *keys.pastRows}, {}, "is_new");
  Value& gap = build.node("Sub", {*keys.pastRows, *keys.pastLength}, {}, "gap");
  Value& moved = build.node("Sub", {column, gap}, {}, "new_position");
  return {&build.node("Or", {isPast, isNew}, {}, "is_key"),
          &build.node("Where", {isNew, moved, column}, {}, "key_position")};
}

} // namespace

Value& gappedKeyMask(const GappedKeys& keys, bool causal, int64_t window, Value& query,
                     AttentionBuilder& build) {
  const Columns columns = columnsOf(keys, query, build);
  Value* visible = columns.isKey;
  if (!causal && window == 0)
    return *visible;
  Value& perRow = build.positions(*keys.pastLength, build.extent(query, 2, true));
  Value& positions = build.unsqueeze(build.unsqueeze(perRow, 1), 3);
  if (causal)
    visible = &bothHold(visible, build.node("LessOrEqual", {*columns.position, positions}), build);
  if (window != 0) {
    Value& end = build.node("Sub", {positions, ints({window})}, {}, "window_end");
    visible = &bothHold(visible, build.node("Greater", {*columns.position, end}), build);
  }
  return *visible;
}

Value& spreadMask(const GappedKeys& keys, Value& mask, const Dim& columns, Value& query,
                  AttentionBuilder& build) {
  if (mask.type().rank() == 0)
    return mask;
  const auto last = static_cast<int64_t>(mask.type().rank()) - 1;
  const Dim& width = mask.type().dim(last);
  if (width.value() == 1)
    return mask;
  Value* full = &mask;
  if (!width.isKnownEqual(columns)) {
    // Broadcasts one column or all columns to all columns.
    Value& total =
        build.node("Add", {*keys.pastLength, build.extent(query, 2)}, {}, "past_and_new_tokens");
    full = &build.node("Expand", {mask, total}, {}, "mask_columns");
  }
  const Columns all = columnsOf(keys, query, build);
  // The gap may repeat any column; the first one always exists.
  Value& source = build.node("Where", {*all.isKey, *all.position, ints({0})}, {}, "mask_column");
  return build.node("Gather", {*full, source}, attrs({{"axis", last}}), "spread_mask");
}

} // namespace kvopt::targets
