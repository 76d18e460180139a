// OpsetEdit and OpsetAdapterRegistry.
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

Value& OpsetEdit::constant(llvm::StringRef hint, TensorRef data) const {
  if (!inFunction)
    return graph().addConstant(hint, std::move(data));
  std::vector<NamedAttribute> attributes;
  attributes.push_back({"value", Attribute::ofTensor(std::move(data))});
  return before("Constant", {}, hint, std::move(attributes));
}

Value& OpsetEdit::before(OpName op, llvm::ArrayRef<Value*> operands, llvm::StringRef hint,
                         std::vector<NamedAttribute> attributes) const {
  Node& created = graph().createFresh(op, operands, 1, &adapted, hint);
  for (NamedAttribute& attribute : attributes)
    created.setAttribute(attribute.name, std::move(attribute.value));
  return created.result();
}

void OpsetEdit::after(OpName op, llvm::ArrayRef<Value*> more, llvm::StringRef hint,
                      std::vector<NamedAttribute> attributes) const {
  Value& result = adapted.result();
  Node* behind = graph().nodeAfter(adapted);
  // Readers are moved before the new node becomes one.
  Node& created = graph().createFresh(op, {nullptr}, 1, behind, hint);
  for (NamedAttribute& attribute : attributes)
    created.setAttribute(attribute.name, std::move(attribute.value));
  created.result().setType(result.type());
  result.replaceAllUsesWith(created.result());
  llvm::SmallVector<Value*, 3> operands{&result};
  operands.append(more.begin(), more.end());
  created.setOperands(operands);
}

void OpsetEdit::setOperand(unsigned operand, Value& value) const {
  llvm::SmallVector<Value*, 6> operands;
  for (const Use& use : adapted.operands())
    operands.push_back(use.value());
  if (operands.size() <= operand)
    operands.resize(operand + 1, nullptr);
  operands[operand] = &value;
  adapted.setOperands(operands);
}

void OpsetEdit::intsToOperand(llvm::StringRef name, unsigned operand) const {
  std::optional<llvm::ArrayRef<int64_t>> values = adapted.intsAttr(name);
  if (!values)
    return;
  if (!values->empty())
    setOperand(operand, constant(name, int64Tensor(*values)));
  adapted.removeAttribute(name);
}

void OpsetAdapterRegistry::add(OpsetAdapter adapter) {
  assert(!find(adapter.op, adapter.since) && "one adapter for each change");
  adapters.push_back(adapter);
}

const OpsetAdapter* OpsetAdapterRegistry::find(llvm::StringRef op, int64_t since) const {
  for (const OpsetAdapter& adapter : adapters)
    if (adapter.op == op && adapter.since == since)
      return &adapter;
  return nullptr;
}

} // namespace kvopt::opset
