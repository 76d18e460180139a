// Node: one operation of a graph.
#pragma once

#include "ir/attribute.h"
#include "ir/op_name.h"
#include "ir/value.h"

#include "llvm/ADT/ilist.h"

#include <memory>
#include <utility>

namespace kvopt::onnx {
class NodeProto;
} // namespace kvopt::onnx

namespace kvopt::ir {
class Node;
}

/// A graph owns its nodes: removing a node from the list destroys it.
template <> struct llvm::ilist_alloc_traits<kvopt::ir::Node> {
  static void deleteNode(kvopt::ir::Node* node);
};

namespace kvopt::ir {

struct OpDef;

using Metadata = std::vector<std::pair<std::string, std::string>>;

/// An operation: operator, operands, attributes, results. It is in its graph's node list, after the
/// nodes that produce its operands. The number of results is fixed at creation.
class Node : public llvm::ilist_node<Node> {
public:
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  OpName op() const { return opName; }
  bool is(OpName name) const { return opName == name; }
  /// Definition selected by the model's opset; null for an operator that kvopt does not know.
  const OpDef* definition() const { return opDefinition; }
  /// Must be called when the imported version of the operator's domain has changed.
  void refreshDefinition();
  llvm::StringRef name() const { return nodeName; }
  void setName(std::string name);
  Graph& graph() const { return *parent; }

  llvm::ArrayRef<Use> operands() const { return {operandSlots, operandCount}; }
  /// Null for an absent optional operand and for an index past the last operand.
  Value* operand(unsigned index) const {
    return index < operandCount ? operandSlots[index].value() : nullptr;
  }
  void setOperand(unsigned index, Value* value);
  /// Replaces all operands; null is an absent operand.
  void setOperands(llvm::ArrayRef<Value*> values);

  llvm::MutableArrayRef<Value> results() { return {resultValues, resultCount}; }
  llvm::ArrayRef<Value> results() const { return {resultValues, resultCount}; }
  Value& result(unsigned index = 0) {
    assert(index < resultCount);
    return resultValues[index];
  }
  const Value& result(unsigned index = 0) const {
    assert(index < resultCount);
    return resultValues[index];
  }
  /// Whether no result is read or a graph output.
  bool isUnused() const;

  llvm::ArrayRef<NamedAttribute> attributes() const { return attributeList; }
  llvm::MutableArrayRef<NamedAttribute> attributes() { return attributeList; }
  /// The written attribute; null if it is absent, even if it has a default.
  const Attribute* attribute(llvm::StringRef name) const;
  /// The written attribute, or the default of the operator's definition, or null.
  const Attribute* attributeOrDefault(llvm::StringRef name) const;
  /// Value of the attribute or of its default; `otherwise` if there is neither, or if its kind
  /// differs.
  int64_t intAttr(llvm::StringRef name, int64_t otherwise) const;
  float floatAttr(llvm::StringRef name, float otherwise) const;
  llvm::StringRef stringAttr(llvm::StringRef name, llvm::StringRef otherwise) const;
  std::optional<llvm::ArrayRef<int64_t>> intsAttr(llvm::StringRef name) const;
  void setAttribute(llvm::StringRef name, Attribute value);
  void removeAttribute(llvm::StringRef name);
  /// Subgraphs of all attributes, in order.
  llvm::SmallVector<Graph*, 2> subgraphs() const;

  const Metadata& metadata() const { return metadataList; }
  void setMetadata(Metadata metadata);
  llvm::StringRef overload() const { return overloadName; }
  void setOverload(std::string overload);

  /// Whether this node precedes `other` in the node list of their common graph. Amortized O(1).
  bool comesBefore(const Node& other) const;

  /// Whether a slice with known start and end is assumed to end within its operand. The assumption
  /// is not part of the file: a pass makes it, and reports it.
  bool isWithinAssumed() const { return withinAssumed; }
  void assumeWithin() { withinAssumed = true; }

  /// Text for messages: `node '/model/MatMul_3' (MatMul)`.
  std::string describe() const;

  /// Message from which this node was read, or null. Written back if nothing was edited.
  const onnx::NodeProto* source() const { return sourceMessage; }
  /// Declares that `message` describes the node, which counts as unedited from now on.
  void setSource(const onnx::NodeProto* message) {
    sourceMessage = message;
    edited = false;
  }
  /// Whether attributes, name or metadata differ from the source message.
  bool isEdited() const { return edited; }

private:
  friend class Graph;
  friend struct llvm::ilist_alloc_traits<Node>;
  Node(Graph& graph, OpName op);
  ~Node();
  void releaseOperands();

  Graph* parent;
  OpName opName;
  const OpDef* opDefinition = nullptr;
  std::string nodeName;
  std::string overloadName;
  // Both arrays are allocated from the context's pools.
  Use* operandSlots = nullptr;
  unsigned operandCount = 0;
  Value* resultValues = nullptr;
  unsigned resultCount = 0;
  mutable uint64_t order = 0;
  bool edited = false;
  bool withinAssumed = false;
  unsigned heldGraphs = 0; // number of graphs held by attributes
  std::vector<NamedAttribute> attributeList;
  Metadata metadataList;
  const onnx::NodeProto* sourceMessage = nullptr;
};

} // namespace kvopt::ir
