// Comparisons of positions; the builder shares them between layers.
#include "passes/targets/support/key_visibility.h"

#include <limits>

namespace kvopt::targets {
using namespace builders;
using namespace ir;

Value& bothHold(Value* first, Value& second, AttentionBuilder& build) {
  return first ? build.node("And", {*first, second}, {}, "visible") : second;
}

Value* visibilityMask(const KeyVisibility& hidden, const BuilderOperand& rows,
                      const BuilderOperand& keys, AttentionBuilder& build) {
  Value* visible = nullptr;
  if (hidden.hidesLaterKeys || hidden.window != 0) {
    Value& perRow = build.positions(*hidden.firstPosition, rows);
    Value& positions = build.unsqueeze(build.unsqueeze(perRow, 1), 3);
    if (hidden.hidesLaterKeys) {
      Value& last = hidden.ahead == 0
                        ? positions
                        : build.node("Add", {positions, ints({hidden.ahead})}, {}, "window_last");
      visible = &build.node("LessOrEqual", {build.range(keys), last});
    }
    if (hidden.window != 0) {
      Value& end = build.node("Sub", {positions, ints({hidden.window})}, {}, "window_end");
      visible = &bothHold(visible, build.node("Greater", {build.range(keys), end}), build);
    }
  }
  if (hidden.keyCount) {
    Value& column = build.node("Reshape", {*hidden.keyCount, ints({-1, 1, 1, 1})});
    visible = &bothHold(visible, build.node("Less", {build.range(keys), column}), build);
  }
  return visible;
}

Value& withHiddenKeys(Value* mask, Value& visible, AttentionBuilder& build) {
  if (!mask)
    return visible;
  const ElementType element = mask->type().elementType();
  if (element == ElementType::Bool)
    return build.node("And", {*mask, visible}, {}, "mask");
  constexpr double hidden = -std::numeric_limits<double>::infinity();
  return build.node("Where", {visible, *mask, floatScalar(element, hidden)}, {}, "mask");
}

} // namespace kvopt::targets
