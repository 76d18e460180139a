// Pad: the amounts and the value of the padding are operands since 11.
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

namespace {

constexpr const char* padAttributes[] = {"pads", "value"};

std::optional<std::string> obstacleToPad(const Node& node) {
  if (!node.intsAttr("pads"))
    return "no attribute 'pads'";
  if (!node.attribute("value") || isFloatingPoint(node.operand(0)->type().elementType()))
    return std::nullopt;
  return "a value for an element type that is not known to be floating-point";
}

void adaptPad(const OpsetEdit& edit) {
  Node& node = edit.node();
  llvm::ArrayRef<int64_t> pads = *node.intsAttr("pads");
  edit.setOperand(1, edit.constant("pads", int64Tensor(pads)));
  if (const Attribute* value = node.attribute("value")) {
    const ElementType element = node.operand(0)->type().elementType();
    const auto number = static_cast<double>(value->floatValue());
    edit.setOperand(2, edit.constant("padding", floatScalar(element, number)));
  }
  node.removeAttribute("pads");
  node.removeAttribute("value");
}

} // namespace

void register_pad(OpsetAdapterRegistry& registry) {
  registry.add({"Pad", 11, obstacleToPad, adaptPad, padAttributes});
}

} // namespace kvopt::opset
