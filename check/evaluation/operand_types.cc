// Which operands have one type, and what their types are.
#include "check/evaluation/operand_types.h"

#include "ir/elementwise.h"

#include "llvm/ADT/StringSwitch.h"

namespace kvopt::check {
namespace {

/// The operands of one type, a bit for each; 0 if there are none.
uint32_t operandsOfOneType(const ir::Node& node) {
  constexpr uint32_t all = ~uint32_t(0);
  if (!node.op().isOnnx() || node.is("Pow"))
    return 0;
  if (const auto function = ir::elementFunction(node))
    return *function == ir::ElementFunction::Choice ? all - 1 : all;
  return llvm::StringSwitch<uint32_t>(node.op().type())
      .Cases("MatMul", "Gemm", "Einsum", "Concat", "Conv", "Range", all)
      .Cases("Pad", "ScatterND", "ScatterElements", 0b101)
      .Cases("TensorScatter", "Attention", 0b11)
      .Default(0);
}

struct OperandType {
  ir::ElementType declared = ir::ElementType::Undefined;
  bool isFloat = false;
};

/// The type that the model declares, or else what is known from the contents.
OperandType typeOf(const ir::Value& value, const Ref& contents) {
  if (const auto type = value.type().elementType(); type != ir::ElementType::Undefined)
    return {type, ir::isFloatingPoint(type)};
  if (contents && contents->isInteger())
    return {contents->type, false};
  return {ir::ElementType::Undefined, contents && contents->kind == Kind::Known};
}

bool areMixed(const OperandType& a, const OperandType& b) {
  constexpr auto unknown = ir::ElementType::Undefined;
  if (a.declared != unknown && b.declared != unknown)
    return a.declared != b.declared;
  return (a.declared != unknown && b.isFloat && !a.isFloat) ||
         (b.declared != unknown && a.isFloat && !b.isFloat);
}

std::string nameOf(const OperandType& type) {
  return type.declared == ir::ElementType::Undefined ? "float" : ir::onnxName(type.declared).str();
}

} // namespace

std::string mixedTypes(const ir::Node& node, llvm::ArrayRef<Ref> operands) {
  constexpr unsigned most = 32;
  const uint32_t ofOneType = operandsOfOneType(node);
  std::optional<OperandType> first;
  for (unsigned i = 0; ofOneType && i < operands.size(); ++i) {
    const ir::Value* value = node.operand(i);
    if (!value || !(ofOneType >> std::min(i, most - 1) & 1))
      continue;
    const OperandType own = typeOf(*value, operands[i]);
    if (first && areMixed(*first, own))
      return "its operands are of the types " + nameOf(*first) + " and " + nameOf(own);
    if (!first || first->declared == ir::ElementType::Undefined)
      first = own;
  }
  return "";
}

} // namespace kvopt::check
