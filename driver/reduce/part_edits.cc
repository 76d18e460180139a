// Removing parts that are not nodes.
#include "driver/reduce/part_edits.h"

#include "ir/op.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::driver {
using namespace ir;

namespace {

/// Calls `visit` for each node with the prefix of the keys of its parts.
void forEachKeyed(const Graph& graph,
                  llvm::function_ref<void(const std::string& prefix, const Node& node)> visit) {
  unsigned index = 0;
  for (const Node& node : graph.nodes())
    visit(formatted("{}.", index++), node);
}

llvm::StringSet<> setOfNames(llvm::ArrayRef<std::string> names) {
  llvm::StringSet<> set;
  for (const std::string& name : names)
    set.insert(name);
  return set;
}

bool isRequired(const Node& node, llvm::StringRef attribute) {
  if (node.is("Constant"))
    return true; // One of several attributes is required.
  const OpDef* definition = node.definition();
  const FormalAttribute* formal = definition ? definition->findAttribute(attribute) : nullptr;
  return formal && formal->required;
}

bool mayBeAbsent(const Node& node, unsigned operand) {
  const OpDef* definition = node.definition();
  if (!node.operand(operand))
    return false;
  if (!definition)
    return operand > 0;
  return operand >= definition->minOperands();
}

} // namespace

std::vector<std::string> outputNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Value* output : graph.outputs())
    names.push_back(output->name().str());
  return names;
}

bool removeOutputs(Graph& graph, llvm::ArrayRef<std::string> names) {
  const llvm::StringSet<> removed = setOfNames(names);
  for (unsigned slot = static_cast<unsigned>(graph.outputs().size()); slot-- > 0;)
    if (removed.contains(graph.outputs()[slot]->name()))
      graph.removeOutput(slot);
  return !graph.outputs().empty();
}

std::vector<std::string> unreadInputs(const Graph& graph) {
  std::vector<std::string> names;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->isUnused())
      names.push_back(input->name().str());
  return names;
}

bool removeInputs(Graph& graph, llvm::ArrayRef<std::string> names) {
  bool removes = false;
  for (const std::string& name : names)
    if (Value* value = graph.findValue(name); value && value->isGraphInput() && value->isUnused()) {
      graph.removeInput(*value);
      removes = true;
    }
  return removes;
}

std::vector<std::string> attributeKeys(const Graph& graph) {
  std::vector<std::string> keys;
  forEachKeyed(graph, [&](const std::string& prefix, const Node& node) {
    for (const NamedAttribute& attribute : node.attributes())
      if (!isRequired(node, attribute.name) && attribute.value.graphs().empty())
        keys.push_back(prefix + attribute.name);
  });
  return keys;
}

bool removeAttributes(Graph& graph, llvm::ArrayRef<std::string> keys) {
  const llvm::StringSet<> removed = setOfNames(keys);
  bool removes = false;
  forEachKeyed(graph, [&](const std::string& prefix, const Node& node) {
    std::vector<std::string> names;
    for (const NamedAttribute& attribute : node.attributes())
      if (removed.contains(prefix + attribute.name))
        names.push_back(attribute.name);
    for (const std::string& name : names)
      const_cast<Node&>(node).removeAttribute(name); // The graph is not const.
    removes |= !names.empty();
  });
  return removes;
}

std::vector<std::string> operandKeys(const Graph& graph) {
  std::vector<std::string> keys;
  forEachKeyed(graph, [&](const std::string& prefix, const Node& node) {
    for (unsigned i = 0; i < node.operands().size(); ++i)
      if (mayBeAbsent(node, i))
        keys.push_back(formatted("{}{}", prefix, i));
  });
  return keys;
}

bool removeOperands(Graph& graph, llvm::ArrayRef<std::string> keys) {
  const llvm::StringSet<> removed = setOfNames(keys);
  bool removes = false;
  forEachKeyed(graph, [&](const std::string& prefix, const Node& node) {
    llvm::SmallVector<Value*, 8> operands;
    bool changes = false;
    for (unsigned i = 0; i < node.operands().size(); ++i) {
      const bool isRemoved = removed.contains(formatted("{}{}", prefix, i));
      operands.push_back(isRemoved ? nullptr : node.operand(i));
      changes |= isRemoved;
    }
    while (!operands.empty() && !operands.back())
      operands.pop_back();
    if (changes)
      const_cast<Node&>(node).setOperands(operands); // The graph is not const.
    removes |= changes;
  });
  return removes;
}

std::vector<std::string> metadataKeys(const Model& model) {
  std::vector<std::string> keys;
  for (const auto& entry : model.metadata)
    keys.push_back(entry.first);
  return keys;
}

bool removeMetadata(Model& model, llvm::ArrayRef<std::string> keys) {
  for (const std::string& key : keys)
    model.removeMetadata(key);
  model.markEdited();
  return !keys.empty();
}

} // namespace kvopt::driver
