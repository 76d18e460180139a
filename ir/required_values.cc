// Errors for absent values.
#include "ir/required_values.h"

#include "ir/op.h"
#include "support/diagnostic.h"

#include <algorithm>

namespace kvopt::ir {
namespace {

/// Name of the formal in quotes, or the index of a value without a formal.
std::string formalName(llvm::ArrayRef<Formal> formals, unsigned index) {
  return index < formals.size() ? formatted("'{}'", formals[index].name) : std::to_string(index);
}

llvm::StringRef nameOf(const Node& node) {
  if (!node.name().empty())
    return node.name();
  for (const Value& result : node.results())
    if (!result.isAbsent())
      return result.name();
  return "";
}

} // namespace

llvm::Expected<Value*> requiredOperand(const Node& node, unsigned index) {
  if (Value* value = node.operand(index))
    return value;
  return invalid("operand {} is missing",
                 formalName(node.definition() ? llvm::ArrayRef<Formal>(node.definition()->operands)
                                              : llvm::ArrayRef<Formal>(),
                            index))
      .node(nameOf(node), node.op().str());
}

llvm::Expected<Value*> requiredResult(Node& node, unsigned index) {
  if (index < node.results().size() && !node.result(index).isAbsent())
    return &node.result(index);
  return invalid("result {} is missing",
                 formalName(node.definition() ? llvm::ArrayRef<Formal>(node.definition()->results)
                                              : llvm::ArrayRef<Formal>(),
                            index))
      .node(nameOf(node), node.op().str());
}

} // namespace kvopt::ir
