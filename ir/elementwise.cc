// Elementwise operators, according to their definitions.
#include "ir/elementwise.h"

#include "ir/node.h"
#include "ir/op.h"

namespace kvopt::ir {

std::optional<ElementFunction> elementFunction(const Node& node) {
  const OpDef* definition = node.definition();
  if (!definition || hasUnknownOperands(node))
    return std::nullopt;
  return definition->elementFunction;
}

bool isElementwise(const Node& node) {
  const std::optional<MovementKind> moves = movementKind(node);
  const bool keepsPlaces = moves == MovementKind::Same || moves == MovementKind::Convert;
  return elementFunction(node) || (keepsPlaces && node.operands().size() == 1);
}

} // namespace kvopt::ir
