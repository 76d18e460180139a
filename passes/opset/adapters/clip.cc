// Clip: the bounds are operands since 11, of the tensor's element type.
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

namespace {

constexpr const char* clipAttributes[] = {"min", "max"};

std::optional<std::string> obstacleToClip(const Node& node) {
  const bool isBounded = node.attribute("min") || node.attribute("max");
  if (!isBounded || isFloatingPoint(node.operand(0)->type().elementType()))
    return std::nullopt;
  return "bounds for an element type that is not known to be floating-point";
}

void adaptClip(const OpsetEdit& edit) {
  Node& node = edit.node();
  const ElementType element = node.operand(0)->type().elementType();
  unsigned operand = 1;
  for (const char* name : clipAttributes) {
    if (const Attribute* bound = node.attribute(name)) {
      const auto value = static_cast<double>(bound->floatValue());
      edit.setOperand(operand, edit.constant(name, floatScalar(element, value)));
      node.removeAttribute(name);
    }
    ++operand;
  }
}

} // namespace

void register_clip(OpsetAdapterRegistry& registry) {
  registry.add({"Clip", 11, obstacleToClip, adaptClip, clipAttributes});
}

} // namespace kvopt::opset
