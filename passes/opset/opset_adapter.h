// OpsetAdapter: takes one operator over one change of its definition; one file each under adapters.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/ArrayRef.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::opset {

/// Edits around one node. What is created is in the form of the opset that the model is brought to.
class OpsetEdit {
public:
  OpsetEdit(ir::Node& node, bool isInFunction) : adapted(node), inFunction(isInFunction) {}

  ir::Node& node() const { return adapted; }
  /// A constant for operands of new and adapted nodes; a Constant node in a function's body, which
  /// has no initializers.
  ir::Value& constant(llvm::StringRef hint, ir::TensorRef data) const;
  /// A node before the adapted one.
  ir::Value& before(ir::OpName op, llvm::ArrayRef<ir::Value*> operands, llvm::StringRef hint,
                    std::vector<ir::NamedAttribute> attributes = {}) const;
  /// A node behind the adapted one, over its first result and `more`: whoever read that result
  /// reads the new one.
  void after(ir::OpName op, llvm::ArrayRef<ir::Value*> more, llvm::StringRef hint,
             std::vector<ir::NamedAttribute> attributes = {}) const;
  /// Makes an operand of the list attribute `name` (int64), at place `operand`; without the
  /// attribute, or if it is empty, the operand is absent.
  void intsToOperand(llvm::StringRef name, unsigned operand) const;
  /// Puts `value` at place `operand`, with absent operands before it where there are none.
  void setOperand(unsigned operand, ir::Value& value) const;

private:
  ir::Graph& graph() const { return adapted.graph(); }

  ir::Node& adapted;
  bool inFunction;
};

struct OpsetAdapter {
  llvm::StringRef op;
  /// The version whose change it takes nodes over.
  int64_t since = 0;
  /// Why it cannot take this node, as `found` of a refusal: "attribute 'spatial' = 0". nullopt if
  /// it can. Types of values may be unknown (function bodies).
  std::optional<std::string> (*obstacle)(const ir::Node& node) = nullptr;
  /// Rewrites a node without obstacle. Attributes still have their old defaults. May replace the
  /// node by another and erase it.
  void (*adapt)(const OpsetEdit& edit) = nullptr;
  /// Attributes that it reads or takes away: none may be a function's own.
  llvm::ArrayRef<const char*> attributes;
};

/// All adapters. Filled once, then read only.
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
