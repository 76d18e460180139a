// Symbolic shape inference: types of all values, and contents of the integer tensors that shapes
// are computed with.
#pragma once

#include "ir/graph.h"
#include "ir/op.h"

namespace kvopt::ir {

/// Types and contents of a node's operands that stand in for those of the graph.
class SuppliedOperands {
public:
  virtual ~SuppliedOperands() = default;
  /// The type of an operand that is present.
  virtual const TensorType& type(unsigned operand) = 0;
  /// Elements of an integer operand; nullopt where they are not known.
  virtual std::optional<llvm::SmallVector<Dim, 4>> integers(unsigned operand) = 0;
};

/// What a shape rule sees of its node. Operands that are absent have no type and no contents.
class ShapeContext {
public:
  explicit ShapeContext(Node& inferredNode) : current(inferredNode) {}
  /// The rule sees `operands`, and what it infers goes to `results`, one type for each result; the
  /// node stays as it is.
  ShapeContext(const Node& inferredNode, SuppliedOperands& operands,
               std::vector<TensorType>& results)
      : current(const_cast<Node&>(inferredNode)), supplied(&operands), inferred(&results) {}

  Node& node() const { return current; }
  /// The version of the node's domain in its graph.
  int64_t opset() const;
  bool has(unsigned operand) const { return current.operand(operand) != nullptr; }
  /// The operand's type; an empty type when absent.
  const TensorType& type(unsigned operand) const;
  ElementType element(unsigned operand) const { return type(operand).elementType(); }
  /// Elements of an integer operand, see Value::knownIntegers.
  std::optional<llvm::SmallVector<Dim, 4>> integers(unsigned operand) const;
  /// The elements if all are constants.
  std::optional<llvm::SmallVector<int64_t, 8>> constantIntegers(unsigned operand) const;

  unsigned resultCount() const { return current.results().size(); }
  void setResult(unsigned result, TensorType type);
  /// Contents of an integer or bool result of rank 0 or 1; kept only up to a fixed length
  /// and where the result's type, which is set before, has provably as many elements.
  void setIntegers(unsigned result, std::optional<llvm::SmallVector<Dim, 4>> elements);

  /// An error about this node, with its name and operator.
  llvm::Error error(const std::string& message) const;

private:
  Node& current;
  SuppliedOperands* supplied = nullptr;
  std::vector<TensorType>* inferred = nullptr;
};

/// Infers the results of one node from its operands' types. Values for which no rule is known, or
/// of which the rule says nothing, keep the type they were declared with.
llvm::Error inferNode(Node& node);

/// The types of a node's results for other operands than it has; none where the operator has no
/// shape rule, or contains graphs.
llvm::Expected<std::vector<TensorType>> resultTypesFor(const Node& node,
                                                       SuppliedOperands& operands);

/// Infers every node of the graph in order, subgraphs included (captured values are seen; results
/// of If and Loop are what all branches agree on). An operator without a definition is no error.
llvm::Error inferShapes(Graph& graph);

/// Multidirectional broadcasting of ONNX; an axis is unknown where neither extent is provably 1 or
/// equal to the other. nullopt when two known extents contradict each other.
std::optional<Shape> broadcastShapes(llvm::ArrayRef<Dim> a, llvm::ArrayRef<Dim> b);

} // namespace kvopt::ir
