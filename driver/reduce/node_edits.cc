// Removing nodes, and what replaces their results.
#include "driver/reduce/node_edits.h"

#include "support/format.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace ir;

namespace {

/// Size of the largest tensor of zeros that replaces a result.
constexpr int64_t mostZeroBytes = 1 << 16;

std::string nameOfNode(const Node& node) {
  for (const Value& result : node.results())
    if (!result.isAbsent())
      return result.name().str();
  return "";
}

/// A constant of zeros with the value's type; null if its type is not fixed or too large.
Value* zerosLike(const Value& value, Graph& graph) {
  const auto extents = value.type().fixedShape();
  if (!extents)
    return nullptr;
  auto count = checkedElementCount(*extents);
  if (!count) {
    llvm::consumeError(count.takeError());
    return nullptr;
  }
  auto bytes = checkedByteSize(value.type().elementType(), *count);
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return nullptr;
  }
  if (*bytes > mostZeroBytes)
    return nullptr;
  auto zeros = makeTensor(value.type().elementType(), *extents,
                          std::vector<std::byte>(static_cast<size_t>(*bytes)));
  if (!zeros) {
    llvm::consumeError(zeros.takeError());
    return nullptr;
  }
  return &graph.addConstant("zeros", *zeros);
}

bool hasKnownType(const Value& value) {
  return value.type().elementType() != ElementType::Undefined && value.type().hasRank();
}

/// Gives a value of unknown type the element type of an operand of its node, because inputs and
/// outputs must declare one. Types are unknown after operators without a definition, and if they
/// contradict each other in the whole model. Returns whether the element type is known.
bool assumeElementType(Value& value) {
  if (value.type().elementType() == ElementType::Undefined && value.producer())
    for (const Use& use : value.producer()->operands())
      if (use.value() && use.value()->type().elementType() != ElementType::Undefined) {
        value.setType(TensorType(use.value()->type().elementType()));
        break;
      }
  return value.type().elementType() != ElementType::Undefined;
}

/// Node of `graph` that is the user or holds its subgraph.
const Node* userIn(const Graph& graph, const Node& user) {
  const Node* node = &user;
  while (&node->graph() != &graph)
    node = node->graph().parentNode();
  return node;
}

void removeOutputsOf(Graph& graph, const Value& value) {
  for (unsigned slot = static_cast<unsigned>(graph.outputs().size()); slot-- > 0;)
    if (graph.outputs()[slot] == &value)
      graph.removeOutput(slot);
}

/// Removal of several nodes of one graph.
class Removal {
public:
  Removal(Graph& changed, llvm::ArrayRef<Node*> removedNodes)
      : graph(changed), nodes(removedNodes), removed(removedNodes.begin(), removedNodes.end()) {}

  bool run(Replacement replacement, bool keepsOperands) {
    for (Node* node : nodes) {
      noteOperands(*node);
      for (Value& result : node->results())
        if (!result.isAbsent() && !replace(result, replacement))
          return false;
    }
    for (Node* node : llvm::reverse(nodes))
      graph.erase(*node);
    for (const auto& [value, name] : renamed)
      graph.rename(*value, name);
    for (Value* value : entering)
      if (!keepOrRemove(*value, keepsOperands))
        return false;
    return true;
  }

private:
  /// Collects the values that removed nodes read and that other nodes, inputs and constants give.
  void noteOperands(const Node& node) {
    const auto note = [&](Value* value) {
      if (value && &value->graph() == &graph && !removed.contains(value->producer()) &&
          noted.insert(value).second)
        entering.push_back(value);
    };
    for (const Use& use : node.operands())
      note(use.value());
    for (Value* value : capturedValues(node))
      note(value);
  }

  bool isReadElsewhere(const Value& value) const {
    return llvm::any_of(
        value.uses(), [&](const Use& use) { return !removed.contains(userIn(graph, use.user())); });
  }

  bool replace(Value& result, Replacement replacement) {
    removeOutputsOf(graph, result);
    // Subgraphs may return a value of the graph.
    if (!isReadElsewhere(result) && !result.isGraphOutput())
      return true;
    Value* other = nullptr;
    if (replacement == Replacement::Input) {
      if (!assumeElementType(result))
        return false;
      other = &graph.addInput(graph.freshName(result.name()), result.type());
      renamed.emplace_back(other, result.name().str());
    } else {
      const auto found = llvm::find_if(entering, [&](const Value* value) {
        return hasKnownType(result) && value->type() == result.type();
      });
      other = found != entering.end() ? *found : zerosLike(result, graph);
    }
    if (!other)
      return false;
    result.replaceAllUsesWith(*other);
    return true;
  }

  bool keepOrRemove(Value& value, bool keepsOperands) {
    if (!value.isUnused())
      return true;
    if (value.isGraphInput())
      graph.removeInput(value);
    else if (keepsOperands && value.producer()) {
      if (!assumeElementType(value))
        return false;
      graph.addOutput(value);
    }
    return true;
  }

  Graph& graph;
  llvm::ArrayRef<Node*> nodes;
  llvm::DenseSet<const Node*> removed;
  llvm::DenseSet<const Value*> noted;
  llvm::SmallVector<Value*, 16> entering;
  llvm::SmallVector<std::pair<Value*, std::string>, 8> renamed;
};

/// Calls `visit` with the key and the node for every node of subgraphs and functions.
void forEachNested(Model& model, llvm::function_ref<void(const std::string&, Node&)> visit) {
  unsigned graphs = 0;
  const auto visitGraph = [&](Graph& graph) {
    if (&graph == &model.graph())
      return;
    unsigned index = 0;
    const unsigned number = graphs++;
    for (Node& node : graph.nodes())
      visit(formatted("{}.{}", number, index++), node);
  };
  forEachGraph(model.graph(), visitGraph);
  for (const auto& function : model.functions)
    forEachGraph(function->body, visitGraph);
}

/// Replaces the results of a nested node and erases it.
bool removeNested(Node& node) {
  Graph& graph = node.graph();
  const bool isTyped = llvm::all_of(node.results(), [](const Value& result) {
    return result.isAbsent() || result.isUnused() || hasKnownType(result);
  });
  for (Value& result : node.results()) {
    if (result.isAbsent() || result.isUnused())
      continue;
    Value* other = nullptr;
    for (const Use& use : node.operands())
      if (!other && use.value() && (!isTyped || use.value()->type() == result.type()))
        other = use.value();
    if (!other && isTyped)
      other = zerosLike(result, graph);
    if (!other)
      return false;
    result.replaceAllUsesWith(*other);
  }
  if (!node.isUnused())
    return false;
  graph.erase(node);
  return true;
}

/// A copy of a node whose attributes hold no graphs; null for other nodes.
Node* copyNode(const Node& node, Graph& graph, Node* before,
               llvm::DenseMap<const Value*, Value*>& copies) {
  if (!node.subgraphs().empty())
    return nullptr;
  llvm::SmallVector<Value*, 4> operands;
  for (const Use& use : node.operands())
    operands.push_back(copies.count(use.value()) ? copies.lookup(use.value()) : use.value());
  std::vector<std::string> names;
  for (const Value& result : node.results())
    names.push_back(result.isAbsent() ? "" : graph.freshName(result.name()));
  llvm::SmallVector<llvm::StringRef, 4> references(names.begin(), names.end());
  Node& copy = graph.create(node.op(), operands, references, before);
  for (const NamedAttribute& attribute : node.attributes())
    copy.setAttribute(attribute.name, attribute.value.clone());
  for (size_t i = 0; i < node.results().size(); ++i)
    copies[&node.results()[i]] = &copy.result(static_cast<unsigned>(i));
  return &copy;
}

} // namespace

std::vector<std::string> nodeNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes())
    if (std::string name = nameOfNode(node); !name.empty())
      names.push_back(std::move(name));
  return names;
}

bool removeNodes(Graph& graph, llvm::ArrayRef<std::string> names, Replacement replacement,
                 bool keepsOperands) {
  // Nodes that an earlier removal erased are skipped. The names are in the order of the graph.
  llvm::SmallVector<Node*, 32> nodes;
  for (const std::string& name : names)
    if (Value* value = graph.findValue(name); value && value->producer())
      nodes.push_back(value->producer());
  return !nodes.empty() && Removal(graph, nodes).run(replacement, keepsOperands);
}

std::vector<std::string> nestedNodeKeys(Model& model) {
  std::vector<std::string> keys;
  forEachNested(model, [&](const std::string& key, Node&) { keys.push_back(key); });
  return keys;
}

bool removeNestedNodes(Model& model, llvm::ArrayRef<std::string> keys) {
  llvm::SmallVector<Node*, 16> nodes;
  forEachNested(model, [&](const std::string& key, Node& node) {
    if (llvm::is_contained(keys, key))
      nodes.push_back(&node);
  });
  // A node that holds one of the others precedes it.
  bool isPossible = !nodes.empty();
  for (Node* node : llvm::reverse(nodes))
    isPossible = isPossible && removeNested(*node);
  return isPossible;
}

bool takeBranch(Graph& graph, llvm::StringRef name, unsigned branch) {
  Value* value = graph.findValue(name);
  Node* node = value ? value->producer() : nullptr;
  if (!node || branch >= node->subgraphs().size())
    return false;
  const Graph& taken = *node->subgraphs()[branch];
  if (!taken.inputs().empty() || taken.outputs().size() != node->results().size())
    return false;
  llvm::DenseMap<const Value*, Value*> copies;
  for (const std::unique_ptr<Value>& initializer : taken.initializers()) {
    if (!initializer->initializer())
      return false;
    copies[initializer.get()] = &graph.addConstant(initializer->name(), initializer->initializer());
  }
  for (const Node& inner : taken.nodes())
    if (!copyNode(inner, graph, node, copies))
      return false;
  for (size_t i = 0; i < node->results().size(); ++i) {
    Value& result = node->result(static_cast<unsigned>(i));
    Value* output = taken.outputs()[i];
    if (!result.isAbsent())
      result.replaceAllUsesWith(copies.count(output) ? *copies.lookup(output) : *output);
  }
  graph.erase(*node);
  return true;
}

} // namespace kvopt::driver
