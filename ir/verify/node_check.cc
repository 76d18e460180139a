// Operand counts, result counts, attribute kinds, and the interface of subgraphs.
#include "ir/verify/node_check.h"

#include "ir/graph.h"
#include "ir/op.h"
#include "ir/views.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {
namespace {

llvm::Error checkOperands(const Node& node, const OpDef& definition) {
  const size_t count = node.operands().size();
  if (count < definition.minOperands())
    return invalid("has {} operands, needs {}", count, definition.minOperands());
  if (auto most = definition.maxOperands(); most && count > *most && !hasUnknownOperands(node))
    return invalid("has {} operands, takes at most {}", count, *most);
  for (size_t i = 0; i < count; ++i) {
    // The last formal describes all following operands.
    const Formal& formal = definition.operands[std::min(i, definition.operands.size() - 1)];
    if (formal.arity != Formal::Arity::Optional && !node.operand(static_cast<unsigned>(i)))
      return invalid("operand '{}' is missing", formal.name);
  }
  return llvm::Error::success();
}

llvm::Error checkResults(const Node& node, const OpDef& definition) {
  const size_t count = node.results().size();
  if (count < definition.minResults())
    return invalid("has {} results, needs {}", count, definition.minResults());
  if (auto most = definition.maxResults(); most && count > *most && !hasUnknownOperands(node))
    return invalid("has {} results, gives at most {}", count, *most);
  return llvm::Error::success();
}

llvm::Error checkAttributes(const Node& node, const OpDef& definition) {
  for (const FormalAttribute& formal : definition.attributes) {
    const Attribute* written = node.attribute(formal.name);
    if (!written && formal.required)
      return invalid("attribute '{}' is missing", formal.name);
    if (written && formal.kind != AttributeKind::Undefined && written->kind() != formal.kind)
      return invalid("attribute '{}' is of kind {}, not {}", formal.name,
                     attributeKindName(written->kind()), attributeKindName(formal.kind));
  }
  return llvm::Error::success();
}

/// Fails if the node overwrites one value as two operands, because neither result would survive.
llvm::Error checkOverwritten(const Node& node, const OpDef& definition) {
  llvm::SmallVector<const Value*, 4> buffers;
  for (const Alias& alias : definition.aliases) {
    if (alias.kind != Alias::Kind::InPlace || !node.operand(alias.operand))
      continue;
    const Value* buffer = &bufferOf(*node.operand(alias.operand));
    if (llvm::is_contained(buffers, buffer))
      return invalid("'{}' is two operands that the operator overwrites", buffer->name());
    buffers.push_back(buffer);
  }
  return llvm::Error::success();
}

/// Subgraph of an attribute; null if the attribute refers to one of a function.
const Graph* bodyOf(const Node& node, llvm::StringRef name) {
  const Attribute* attribute = node.attribute(name);
  return attribute && attribute->graphs().size() == 1 ? attribute->graphs().front().get() : nullptr;
}

llvm::Error checkInterface(const Graph* body, llvm::StringRef name, size_t inputs, size_t outputs) {
  if (!body)
    return llvm::Error::success();
  if (body->inputs().size() != inputs)
    return invalid("subgraph '{}' has {} inputs, needs {}", name, body->inputs().size(), inputs);
  if (body->outputs().size() < outputs)
    return invalid("subgraph '{}' has {} outputs, needs {}", name, body->outputs().size(), outputs);
  return llvm::Error::success();
}

} // namespace

llvm::Error checkDefinition(const Node& node) {
  const OpDef* definition = node.definition();
  if (!definition)
    return llvm::Error::success();
  if (llvm::Error error = checkOperands(node, *definition))
    return error;
  if (llvm::Error error = checkResults(node, *definition))
    return error;
  if (llvm::Error error = checkOverwritten(node, *definition))
    return error;
  return checkAttributes(node, *definition);
}

llvm::Error checkBodies(const Node& node) {
  const size_t operands = node.operands().size();
  const size_t results = node.results().size();
  if (node.is("If")) {
    for (llvm::StringRef name : {"then_branch", "else_branch"})
      if (llvm::Error error = checkInterface(bodyOf(node, name), name, 0, results))
        return error;
  } else if (node.is("Loop")) {
    const size_t carried = operands > 2 ? operands - 2 : 0;
    // The first input counts iterations; the second input and the first output are the condition.
    if (results < carried)
      return invalid("has {} results for {} carried operands", results, carried);
    return checkInterface(bodyOf(node, "body"), "body", carried + 2, results + 1);
  } else if (node.is("Scan") && node.definition()) {
    const int64_t scanned = node.intAttr("num_scan_inputs", 0);
    if (scanned < 1 || static_cast<uint64_t>(scanned) > operands)
      return invalid("num_scan_inputs is {} for {} operands", scanned, operands);
    return checkInterface(bodyOf(node, "body"), "body", operands, results);
  }
  return llvm::Error::success();
}

} // namespace kvopt::ir
