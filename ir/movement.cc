// Movements of nodes, according to the definitions of their operators.
#include "ir/movement.h"

#include "ir/node.h"
#include "ir/op.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {

static const OpMovement* definedMovement(const Node& node) {
  const OpDef* definition = node.definition();
  bool moves = definition && definition->movement && node.operand(definition->movement->data);
  return moves ? &*definition->movement : nullptr;
}

std::optional<MovementKind> movementKind(const Node& node) {
  const OpMovement* defined = definedMovement(node);
  return defined ? std::optional<MovementKind>(defined->kind) : std::nullopt;
}

std::optional<Movement> movementOf(const Value& result) {
  const Node* node = result.producer();
  const OpMovement* defined = node ? definedMovement(*node) : nullptr;
  if (!defined)
    return std::nullopt;
  Movement movement;
  movement.kind = defined->kind;
  movement.data = defined->data;
  // In a function's body, the value of an attribute may only be known at the call.
  bool isWritten = llvm::none_of(node->attributes(), [](const NamedAttribute& attribute) {
    return attribute.value.isReference();
  });
  if (defined->rule && isWritten)
    defined->rule(result, movement);
  return movement;
}

Value* movedOperand(const Node& node) {
  const OpMovement* defined = definedMovement(node);
  return defined ? node.operand(defined->data) : nullptr;
}

bool isMoved(const Use& use) {
  const OpMovement* defined = definedMovement(use.user());
  if (!defined)
    return false;
  return defined->kind == MovementKind::Concat ? use.operandIndex() >= defined->data
                                               : use.operandIndex() == defined->data;
}

llvm::SmallVector<Value*, 4> operandsMoving(const Node& node, Value& data) {
  llvm::SmallVector<Value*, 4> operands;
  for (const Use& use : node.operands())
    operands.push_back(use.value());
  operands[node.definition()->movement->data] = &data;
  return operands;
}

std::optional<llvm::SmallVector<int64_t, 4>> knownIntegersOf(const Node& node, unsigned operand,
                                                             llvm::StringRef attribute) {
  llvm::SmallVector<int64_t, 4> integers;
  if (auto written = node.intsAttr(attribute)) {
    integers.assign(written->begin(), written->end());
    return integers;
  }
  const Value* list = node.operand(operand);
  auto known = list ? list->knownIntegers() : std::nullopt;
  if (!known)
    return std::nullopt;
  for (const Dim& element : *known) {
    std::optional<int64_t> integer = element.value();
    if (!integer)
      return std::nullopt;
    integers.push_back(*integer);
  }
  return integers;
}

std::optional<llvm::SmallVector<unsigned, 4>> axesWithin(llvm::ArrayRef<int64_t> axes,
                                                         unsigned rank) {
  llvm::SmallVector<unsigned, 4> result;
  for (int64_t axis : axes) {
    std::optional<unsigned> normalized = normalizedAxis(axis, rank);
    if (!normalized || llvm::is_contained(result, *normalized))
      return std::nullopt;
    result.push_back(*normalized);
  }
  return result;
}

bool picksElements(MovementKind kind) {
  switch (kind) {
  case MovementKind::Same:
  case MovementKind::Permutation:
  case MovementKind::Reshape:
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes:
  case MovementKind::Broadcast:
  case MovementKind::Repeat:
  case MovementKind::Slice:
  case MovementKind::Gather:
  case MovementKind::PointGather:
    return true;
  case MovementKind::Convert:
  case MovementKind::Concat:
    return false;
  }
  return false;
}

bool keepsOrder(MovementKind kind) {
  switch (kind) {
  case MovementKind::Same:
  case MovementKind::Convert:
  case MovementKind::Reshape:
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes:
    return true;
  case MovementKind::Permutation:
  case MovementKind::Broadcast:
  case MovementKind::Repeat:
  case MovementKind::Slice:
  case MovementKind::Gather:
  case MovementKind::PointGather:
  case MovementKind::Concat:
    return false;
  }
  return false;
}

} // namespace kvopt::ir
