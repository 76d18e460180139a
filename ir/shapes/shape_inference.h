// Symbolic shape inference: types of all values, and contents of the integer tensors from which
// shapes are computed.
#pragma once

#include "ir/graph.h"
#include "ir/op.h"

namespace kvopt::ir {

/// View that a shape rule has of its node. Absent operands have no type and no contents.
class ShapeContext {
public:
  explicit ShapeContext(Node& inferredNode) : current(inferredNode) {}

  Node& node() const { return current; }
  /// Version of the node's domain in its graph.
  int64_t opset() const;
  bool has(unsigned operand) const { return current.operand(operand) != nullptr; }
  /// The operand's type; empty if the operand is absent.
  const TensorType& type(unsigned operand) const;
  ElementType element(unsigned operand) const { return type(operand).elementType(); }
  /// Elements of an integer operand; see Value::knownIntegers.
  std::optional<llvm::SmallVector<Dim, 4>> integers(unsigned operand) const;
  /// The elements, if all are constant.
  std::optional<llvm::SmallVector<int64_t, 8>> constantIntegers(unsigned operand) const;

  unsigned resultCount() const { return current.results().size(); }
  void setResult(unsigned result, TensorType type);
  /// Sets the contents of an integer or bool result of rank 0 or 1. They are kept if the list is
  /// short and if the result's type, which is set before, provably has the same number of elements.
  void setIntegers(unsigned result, std::optional<llvm::SmallVector<Dim, 4>> elements);

  /// An error about this node, with its name and operator.
  llvm::Error error(const std::string& message) const;

private:
  Node& current;
};

/// Infers the results of one node from its operands' types. Values without a rule, or whose rule
/// infers nothing, keep their declared type.
llvm::Error inferNode(Node& node);

/// Infers every node of the graph in order, including subgraphs, which see captured values. Results
/// of If and Loop have the types on which all branches or iterations agree. An operator without a
/// definition is not an error.
llvm::Error inferShapes(Graph& graph);

} // namespace kvopt::ir
