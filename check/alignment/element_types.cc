// Which operators keep the type of an operand.
#include "check/alignment/element_types.h"

#include "ir/elementwise.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {
using ir::ElementFunction;
using ir::ElementType;

namespace {

/// The type of a cast, if its node determines it.
ElementType typeOfCast(const ir::Node& node) {
  const ir::Attribute* to = node.attribute("to");
  return to && !to->isReference() && to->kind() == ir::AttributeKind::Int
             ? static_cast<ElementType>(to->intValue())
             : ElementType::Undefined;
}

/// The operand whose type the first result has; null if there is none, or if it is not known.
const ir::Value* typedOperand(const ir::Node& node) {
  static constexpr const char* ofFirst[] = {"Identity",
                                            "Reshape",
                                            "Flatten",
                                            "Transpose",
                                            "Squeeze",
                                            "Unsqueeze",
                                            "Expand",
                                            "Tile",
                                            "Slice",
                                            "Split",
                                            "Gather",
                                            "GatherElements",
                                            "GatherND",
                                            "Concat",
                                            "Trilu",
                                            "CumSum",
                                            "Range",
                                            "Pad",
                                            "ScatterND",
                                            "ScatterElements",
                                            "TensorScatter",
                                            "MatMul",
                                            "Gemm",
                                            "Einsum",
                                            "Softmax",
                                            "LogSoftmax",
                                            "ReduceSum",
                                            "ReduceMean",
                                            "ReduceMax",
                                            "ReduceMin",
                                            "ReduceProd",
                                            "ReduceL2",
                                            "ReduceSumSquare",
                                            "LayerNormalization"};
  if (!node.op().isOnnx() || node.operands().empty())
    return nullptr;
  if (const auto function = ir::elementFunction(node))
    switch (*function) {
    case ElementFunction::Sum:
    case ElementFunction::Product:
    case ElementFunction::Quotient:
    case ElementFunction::Bound:
    case ElementFunction::Rounding:
    case ElementFunction::Nonlinear:
      return node.operand(0);
    case ElementFunction::Choice:
      return node.operand(1);
    case ElementFunction::Comparison:
    case ElementFunction::Test:
    case ElementFunction::Logic:
    case ElementFunction::Bits:
      return nullptr;
    }
  if (node.is("CastLike"))
    return node.operand(1);
  return llvm::is_contained(ofFirst, node.op().type()) ? node.operand(0) : nullptr;
}

} // namespace

ElementType ElementTypes::of(const ir::Value& value) {
  llvm::SmallVector<const ir::Value*, 16> alike; // values that have one type
  ElementType type = ElementType::Undefined;
  for (const ir::Value* at = &value; at;) {
    if (const auto found = known.find(at); found != known.end()) {
      type = found->second;
      break;
    }
    alike.push_back(at);
    const ir::Node* node = at->producer();
    const bool isGiven = at->isInitializer() || (at->isGraphInput() && !at->graph().parentNode());
    if (isGiven)
      type = at->type().elementType();
    else if (const auto data = at->constantRef())
      type = data->elementType();
    else if (node && node->is("Cast"))
      type = typeOfCast(*node);
    else if (node && (node->is("Shape") || node->is("Size")))
      type = ElementType::Int64;
    const bool follows = node && (at->resultIndex() == 0 || node->is("Split"));
    at = type == ElementType::Undefined && !isGiven && follows ? typedOperand(*node) : nullptr;
  }
  for (const ir::Value* each : alike)
    known[each] = type;
  return type;
}

bool ElementTypes::isCastToSameType(const ir::Node& node) {
  if (!node.is("Cast") && !node.is("CastLike"))
    return false;
  if (node.operands().empty() || !node.operand(0) || node.results().size() != 1)
    return false;
  const ElementType to = of(node.result(0));
  return to != ElementType::Undefined && of(*node.operand(0)) == to;
}

} // namespace kvopt::check
