// Positions of slots, counted backwards from the last token.
#include "passes/targets/onnx/ring_slots.h"

#include "passes/targets/support/key_visibility.h"

#include <numeric>

namespace kvopt::targets {
using namespace builders;
using namespace ir;

RingSlots::RingSlots(Value& pastLength, Value& query, int64_t slotCount, int64_t stepLimit,
                     AttentionBuilder& builder)
    : build(builder), past(pastLength), rows(query), slots(slotCount), kept(slotCount - stepLimit) {
  std::vector<int64_t> counts(static_cast<size_t>(stepLimit) + 1);
  std::iota(counts.begin(), counts.end(), 0);
  Value& count = build.node("Gather", {ints(counts), build.extent(rows, 2)}, {}, "step_tokens");
  total = &build.node("Add", {past, count}, {}, "total_length");
  Value& last = build.node("Sub", {*total, ints({1})}, {}, "last_position");
  Value& ahead = build.node("Sub", {last, build.range(int64Scalar(slots))});
  Value& age = build.node("Mod", {ahead, ints({slots})}, {}, "slot_age");
  positions = &build.node("Sub", {last, age}, {}, "slot_position");
}

Value& RingSlots::visible(bool causal, int64_t window) {
  Value& oldest =
      build.node("Max", {build.node("Sub", {past, ints({kept})}), ints({0})}, {}, "oldest_row");
  Value* seen = &build.node("GreaterOrEqual", {*positions, oldest}, {}, "visible");
  if (!causal && window == 0) {
    // Engines require a row for every query.
    Value& shape = build.concat(build.value(build.extent(rows, 2)), build.value(ints({slots})), 0);
    return build.unsqueeze(build.unsqueeze(build.node("Expand", {*seen, shape}), 0), 0);
  }
  Value& own = build.unsqueeze(
      build.node("Add", {past, build.range(build.extent(rows, 2, true))}, {}, "row_position"), 1);
  if (causal)
    seen = &bothHold(seen, build.node("LessOrEqual", {*positions, own}), build);
  if (window != 0) {
    Value& end = build.node("Sub", {own, ints({window})}, {}, "window_end");
    seen = &bothHold(seen, build.node("Greater", {*positions, end}), build);
  }
  return build.unsqueeze(build.unsqueeze(*seen, 0), 0);
}

Value& RingSlots::gathered(Value& mask) {
  const int64_t axis = static_cast<int64_t>(mask.type().rank()) - 1;
  const BuilderOperand columns = build.extent(mask, axis);
  Value& behind = build.node("Sub", {columns, *total});
  Value& column = build.node("Add", {*positions, behind});
  Value& notBefore = build.node("Max", {column, ints({0})}, {}, "slot_column");
  std::vector<NamedAttribute> attributes;
  attributes.push_back({"axis", Attribute::ofInt(axis)});
  return build.node("Gather", {mask, notBefore}, std::move(attributes), "slot_mask");
}

Value& RingSlots::maskColumns(Value& mask) {
  const unsigned rank = mask.type().rank();
  if (mask.type().dim(-1).value() == 1)
    return mask;
  // A condition and two numbers remain in that form, so that the hidden keys stay recognizable.
  const Node* where = mask.producer();
  const bool isFill = where && where->is("Where") && where->operand(1)->constant() &&
                      where->operand(2)->constant() &&
                      scalarValue(*where->operand(1)->constant()) &&
                      scalarValue(*where->operand(2)->constant());
  if (isFill && where->operand(0)->type().rank() == rank)
    return build.node("Where",
                      {gathered(*where->operand(0)), *where->operand(1), *where->operand(2)}, {},
                      "slot_mask");
  return gathered(mask);
}

} // namespace kvopt::targets
