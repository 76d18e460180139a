// Comparison of attributes with definitions.
#include "runtime/exec/known_attributes.h"

#include "ir/op.h"
#include "support/diagnostic.h"

namespace kvopt::runtime {
using namespace ir;

llvm::Error checkKnownAttributes(const Node& node) {
  const OpDef* definition = node.definition();
  if (!definition)
    return llvm::Error::success();
  if (hasUnknownOperands(node))
    return unsupported("more operands or results than kvopt knows: {} and {}",
                       node.operands().size(), node.results().size())
        .node(node.name(), node.op().str());
  for (const NamedAttribute& attribute : node.attributes())
    if (!definition->findAttribute(attribute.name))
      return unsupported("unknown attribute '{}'", attribute.name)
          .node(node.name(), node.op().str());
  return llvm::Error::success();
}

} // namespace kvopt::runtime
