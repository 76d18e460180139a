// Refusals of attributes and operands that are not handled.
#include "passes/pattern/handled.h"

#include "ir/node.h"
#include "ir/op.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace kvopt::pattern {
using namespace ir;

namespace {

bool sameValue(const Attribute& a, const Attribute& b) {
  if (a.kind() != b.kind())
    return false;
  switch (a.kind()) {
  case AttributeKind::Int:
    return a.intValue() == b.intValue();
  case AttributeKind::Float:
    return a.floatValue() == b.floatValue();
  case AttributeKind::String:
    return a.stringValue() == b.stringValue();
  case AttributeKind::Ints:
    return a.ints() == b.ints();
  default:
    return false;
  }
}

bool hasDefaultValue(const Node& node, const NamedAttribute& attribute) {
  const OpDef* definition = node.definition();
  const FormalAttribute* formal = definition ? definition->findAttribute(attribute.name) : nullptr;
  return formal && formal->defaultValue && sameValue(attribute.value, *formal->defaultValue);
}

/// The name of an operand in the operator's definition.
std::string operandName(const Node& node, unsigned index) {
  const OpDef* definition = node.definition();
  if (!definition || definition->operands.empty())
    return formatted("#{}", index);
  size_t last = definition->operands.size() - 1;
  return definition->operands[std::min<size_t>(index, last)].name;
}

MatchFailure refusal(const Node& node, llvm::StringRef name, llvm::StringRef kind) {
  auto code = llvm::StringSwitch<ReasonCode>(name)
                  .Case("softcap", ReasonCode::SoftcapUnsupported)
                  .Case("sinks", ReasonCode::SinkUnsupported)
                  .Case("window", ReasonCode::WindowNotRepresentable)
                  .Default(ReasonCode::TargetLacksFeature);
  return {code, node.name().str(), formatted("{} without {}", node.op().str(), name),
          formatted("{} '{}'", kind, name), ""};
}

} // namespace

std::optional<MatchFailure> unhandledAttribute(const Node& node,
                                               llvm::ArrayRef<llvm::StringLiteral> handled) {
  if (hasUnknownOperands(node)) {
    const std::optional<unsigned> most = node.definition()->maxOperands();
    const bool isOperand = most && node.operands().size() > *most;
    return refusal(node, isOperand ? formatted("#{}", *most) : "more results than it had",
                   isOperand ? "operand" : "results:");
  }
  for (const NamedAttribute& attribute : node.attributes())
    if (attribute.value.isReference() ||
        (!llvm::is_contained(handled, attribute.name) && !hasDefaultValue(node, attribute)))
      return refusal(node, attribute.name, "attribute");
  return std::nullopt;
}

std::optional<MatchFailure> unhandled(const Node& node, const Handled& handled) {
  if (std::optional<MatchFailure> failure = unhandledAttribute(node, handled.attributes))
    return failure;
  for (unsigned index = 0; index < node.operands().size(); ++index)
    if (node.operand(index))
      if (std::string name = operandName(node, index); !llvm::is_contained(handled.operands, name))
        return refusal(node, name, "operand");
  return std::nullopt;
}

} // namespace kvopt::pattern
