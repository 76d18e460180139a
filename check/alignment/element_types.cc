// From a value to the operand whose type it has.
#include "check/alignment/element_types.h"

namespace kvopt::check {
using ir::ElementType;

ElementType ElementTypes::of(const ir::Value& value) {
  llvm::SmallVector<const ir::Value*, 16> alike; // values that have one type
  ElementType type = ElementType::Undefined;
  for (const ir::Value* at = &value; at;) {
    if (const auto found = known.find(at); found != known.end()) {
      type = found->second;
      break;
    }
    alike.push_back(at);
    if (at->isInitializer() || (at->isGraphInput() && !at->graph().parentNode())) {
      type = at->type().elementType();
      break;
    }
    const auto data = at->constantRef();
    const ir::Node* node = at->producer();
    if (data || !node) {
      type = data ? data->elementType() : ElementType::Undefined;
      break;
    }
    const meaning::NodeFacts& facts = operators.of(*node);
    const unsigned result = at->resultIndex();
    if (result >= facts.types.size())
      break;
    type = facts.types[result].own;
    const auto operand = facts.types[result].ofOperand;
    at = operand ? node->operand(*operand) : nullptr;
  }
  for (const ir::Value* each : alike)
    known[each] = type;
  return type;
}

bool ElementTypes::isCastToSameType(const ir::Node& node) {
  if (!node.is("Cast") && !node.is("CastLike"))
    return false;
  if (node.operands().empty() || !node.operand(0) || node.results().size() != 1)
    return false;
  const ElementType to = of(node.result(0));
  return to != ElementType::Undefined && of(*node.operand(0)) == to;
}

} // namespace kvopt::check
