// Symbolic shape inference: types of all values, and contents of the integer tensors that shapes
// are computed with.
#pragma once

#include "ir/graph.h"
#include "ir/op.h"

namespace kvopt::ir {

/// What a shape rule sees of its node. Operands that are absent have no type and no contents.
class ShapeContext {
public:
  explicit ShapeContext(Node& inferredNode) : current(inferredNode) {}

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
};

/// Infers the results of one node from its operands' types. Values for which no rule is known, or
/// of which the rule says nothing, keep the type they were declared with.
llvm::Error inferNode(Node& node);

/// Infers every node of the graph in order, subgraphs included (captured values are seen; results
/// of If and Loop are what all branches agree on). An operator without a definition is no error.
llvm::Error inferShapes(Graph& graph);

/// Multidirectional broadcasting of ONNX; an axis is unknown where neither extent is provably 1 or
/// equal to the other. nullopt when two known extents contradict each other.
std::optional<Shape> broadcastShapes(llvm::ArrayRef<Dim> a, llvm::ArrayRef<Dim> b);

} // namespace kvopt::ir
