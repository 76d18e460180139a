// Nodes: operands, attributes, order.
#include "ir/node.h"

#include "ir/graph.h"
#include "ir/op.h"
#include "support/format.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"

void llvm::ilist_alloc_traits<kvopt::ir::Node>::deleteNode(kvopt::ir::Node* node) {
  kvopt::ir::GraphContext& context = node->graph().context();
  node->~Node();
  context.nodePool.deallocate(node, 1);
}

namespace kvopt::ir {

Node::Node(Graph& graph, OpName op) : parent(&graph), opName(graph.context().intern(op)) {
  refreshDefinition();
}

void Node::refreshDefinition() {
  opDefinition = parent->context().ops().find(opName, parent->opsetVersion(opName.domain()));
}

Node::~Node() {
  attributeList.clear(); // subgraphs may read the results
  for (Value& result : results()) {
    parent->releaseName(result);
    result.~Value();
  }
  if (resultValues)
    parent->context().resultPool.deallocate(resultValues, resultCount);
  releaseOperands();
}

void Node::releaseOperands() {
  if (!operandSlots)
    return;
  std::destroy_n(operandSlots, operandCount);
  parent->context().usePool.deallocate(operandSlots, operandCount);
}

void Node::setName(std::string name) {
  nodeName = std::move(name);
  edited = true;
  parent->context().noteEdit();
}

void Node::setOverload(std::string overload) {
  overloadName = std::move(overload);
  edited = true;
  parent->context().noteEdit();
}

void Node::setOperand(unsigned index, Value* value) {
  assert(index < operandCount);
  operandSlots[index].link(value);
  parent->context().noteEdit();
}

void Node::setOperands(llvm::ArrayRef<Value*> values) {
  Use* slots = parent->context().usePool.allocate(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    Use& slot = *new (slots + i) Use();
    slot.owner = this;
    slot.index = static_cast<unsigned>(i);
    slot.link(values[i]);
  }
  releaseOperands();
  operandSlots = slots;
  operandCount = static_cast<unsigned>(values.size());
  parent->context().noteEdit();
}

bool Node::isUnused() const {
  return llvm::all_of(results(), [](const Value& value) { return value.isUnused(); });
}

const Attribute* Node::attribute(llvm::StringRef name) const {
  for (const NamedAttribute& entry : attributeList)
    if (entry.name == name)
      return &entry.value;
  return nullptr;
}

const Attribute* Node::attributeOrDefault(llvm::StringRef name) const {
  if (const Attribute* written = attribute(name))
    return written;
  if (!opDefinition)
    return nullptr;
  const FormalAttribute* formal = opDefinition->findAttribute(name);
  return formal && formal->defaultValue ? &*formal->defaultValue : nullptr;
}

namespace {
const Attribute* ofKind(const Attribute* attribute, AttributeKind kind) {
  return attribute && attribute->kind() == kind && !attribute->isReference() ? attribute : nullptr;
}
} // namespace

int64_t Node::intAttr(llvm::StringRef name, int64_t otherwise) const {
  const Attribute* found = ofKind(attributeOrDefault(name), AttributeKind::Int);
  return found ? found->intValue() : otherwise;
}

float Node::floatAttr(llvm::StringRef name, float otherwise) const {
  const Attribute* found = ofKind(attributeOrDefault(name), AttributeKind::Float);
  return found ? found->floatValue() : otherwise;
}

llvm::StringRef Node::stringAttr(llvm::StringRef name, llvm::StringRef otherwise) const {
  const Attribute* found = ofKind(attributeOrDefault(name), AttributeKind::String);
  return found ? found->stringValue() : otherwise;
}

std::optional<llvm::ArrayRef<int64_t>> Node::intsAttr(llvm::StringRef name) const {
  const Attribute* found = ofKind(attributeOrDefault(name), AttributeKind::Ints);
  if (!found)
    return std::nullopt;
  return found->ints();
}

/// Whether the attribute of a Constant node holds its contents.
static bool holdsContents(llvm::StringRef name) {
  return name == "sparse_value" || startsWith(name, "value");
}

/// Contents of a Constant node with this attribute; null unless they are a numeric tensor.
static TensorRef constantContents(llvm::StringRef name, const Attribute& value) {
  if (value.isReference())
    return nullptr;
  if (name == "value" && value.kind() == AttributeKind::Tensor)
    return value.tensorValue();
  if (name == "value_int" && value.kind() == AttributeKind::Int)
    return int64Scalar(value.intValue());
  if (name == "value_ints" && value.kind() == AttributeKind::Ints)
    return int64Tensor(value.ints());
  if (name == "value_float" && value.kind() == AttributeKind::Float)
    return floatScalar(ElementType::Float, static_cast<double>(value.floatValue()));
  if (name == "value_floats" && value.kind() == AttributeKind::Floats) {
    auto packed = std::as_bytes(std::span(value.floats().data(), value.floats().size()));
    auto tensor = makeTensor(ElementType::Float, {static_cast<int64_t>(value.floats().size())},
                             {packed.begin(), packed.end()});
    return llvm::cantFail(std::move(tensor));
  }
  return nullptr;
}

void Node::setAttribute(llvm::StringRef name, Attribute value) {
  edited = true;
  parent->context().noteEdit();
  if (opName == "Constant" && resultCount == 1 && holdsContents(name))
    resultValues[0].initializerData = constantContents(name, value);
  for (NamedAttribute& entry : attributeList)
    if (entry.name == name) {
      entry.value = std::move(value);
      return;
    }
  attributeList.push_back({name.str(), std::move(value)});
}

void Node::removeAttribute(llvm::StringRef name) {
  edited = true;
  parent->context().noteEdit();
  if (opName == "Constant" && resultCount == 1 && holdsContents(name) && attribute(name))
    resultValues[0].initializerData = nullptr;
  llvm::erase_if(attributeList, [&](const NamedAttribute& entry) { return entry.name == name; });
}

llvm::SmallVector<Graph*, 2> Node::subgraphs() const {
  llvm::SmallVector<Graph*, 2> held;
  // Most nodes have no graphs, and this query, made for every node, should not load attributes.
  if (heldGraphs == 0)
    return held;
  for (const NamedAttribute& attribute : attributeList)
    for (const std::unique_ptr<Graph>& graph : attribute.value.graphs())
      held.push_back(graph.get());
  return held;
}

void Node::setMetadata(Metadata metadata) {
  edited = true;
  parent->context().noteEdit();
  metadataList = std::move(metadata);
}

bool Node::comesBefore(const Node& other) const {
  assert(parent == other.parent);
  if (!parent->orderValid)
    parent->renumber();
  return order < other.order;
}

std::string Node::describe() const {
  if (!nodeName.empty())
    return formatted("node '{}' ({})", nodeName, opName.str());
  if (resultCount != 0)
    return formatted("node of '{}' ({})", resultValues[0].name().str(), opName.str());
  return formatted("node ({})", opName.str());
}

} // namespace kvopt::ir
