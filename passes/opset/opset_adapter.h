// OpsetAdapter: converts one operator across one change of its definition. Each adapter is one file
// in adapters.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/ArrayRef.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::opset {

/// Edits around one node. New nodes have the form of the target opset.
class OpsetEdit {
public:
  OpsetEdit(ir::Node& node, bool isInFunction) : adapted(node), inFunction(isInFunction) {}

  ir::Node& node() const { return adapted; }
  /// Creates a constant for operands of new and adapted nodes; in a function's body, which has no
  /// initializers, it is a Constant node.
  ir::Value& constant(llvm::StringRef hint, ir::TensorRef data) const;
  /// Creates a node before the adapted one.
  ir::Value& before(ir::OpName op, llvm::ArrayRef<ir::Value*> operands, llvm::StringRef hint,
                    std::vector<ir::NamedAttribute> attributes = {}) const;
  /// Creates a node after the adapted one, with its first result and `more` as operands; readers of
  /// that result read the new one.
  void after(ir::OpName op, llvm::ArrayRef<ir::Value*> more, llvm::StringRef hint,
             std::vector<ir::NamedAttribute> attributes = {}) const;
  /// Turns the list attribute `name` (int64) into operand number `operand`. If the attribute is
  /// missing or empty, the operand is absent.
  void intsToOperand(llvm::StringRef name, unsigned operand) const;
  /// Sets operand number `operand` to `value`, with absent operands before it if necessary.
  void setOperand(unsigned operand, ir::Value& value) const;

private:
  ir::Graph& graph() const { return adapted.graph(); }

  ir::Node& adapted;
  bool inFunction;
};

struct OpsetAdapter {
  llvm::StringRef op;
  /// Version whose change the adapter handles.
  int64_t since = 0;
  /// Reason why it cannot convert the node, as `found` of a refusal: "attribute 'spatial' = 0".
  /// nullopt if it can. Types of values may be unknown (function bodies).
  std::optional<std::string> (*obstacle)(const ir::Node& node) = nullptr;
  /// Converts a node without obstacle. Attributes still have their old defaults. May replace the
  /// node by another and erase it.
  void (*adapt)(const OpsetEdit& edit) = nullptr;
  /// Attributes that it reads or removes; none of them may be a reference to a function's
  /// attribute.
  llvm::ArrayRef<const char*> attributes;
};

/// All adapters. Filled once, then read-only.
class OpsetAdapterRegistry {
public:
  void add(OpsetAdapter adapter);
  const OpsetAdapter* find(llvm::StringRef op, int64_t since) const;
  llvm::ArrayRef<OpsetAdapter> all() const { return adapters; }

private:
  std::vector<OpsetAdapter> adapters;
};

/// Every adapter under passes/opset/adapters (generated).
void registerAll(OpsetAdapterRegistry& registry);

} // namespace kvopt::opset
