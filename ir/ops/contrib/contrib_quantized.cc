// Products of 8-bit codes in ONNX Runtime's domain com.microsoft.
#include "ir/ops/contrib/contrib_domain.h"
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

llvm::Error inferProduct(ShapeContext& context, ElementType element) {
  auto shape = matMulShape(context, context.type(0), context.type(1));
  if (!shape)
    return shape.takeError();
  context.setResult(0, typeOf(element, std::move(*shape)));
  return llvm::Error::success();
}

// The result has the scales' element type.
llvm::Error inferMatMulIntegerToFloat(ShapeContext& context) {
  return inferProduct(context, context.element(2));
}

llvm::Error inferDynamicQuantizeMatMul(ShapeContext& context) {
  return inferProduct(context, ElementType::Float);
}

} // namespace

void register_contrib_quantized(OpRegistry& registry) {
  OpDefBuilder integers = define(registry, OpName(contribDomain, "MatMulIntegerToFloat"), 1);
  for (const char* name :
       {"A", "B", "a_scale", "b_scale", "a_zero_point?", "b_zero_point?", "bias?"})
    integers.in(name);
  integers.out("Y").shape(inferMatMulIntegerToFloat);
  OpDefBuilder dynamic = define(registry, OpName(contribDomain, "DynamicQuantizeMatMul"), 1);
  for (const char* name : {"A", "B", "b_scale", "b_zero_point?", "bias?"})
    dynamic.in(name);
  dynamic.out("Y").shape(inferDynamicQuantizeMatMul);
}

} // namespace kvopt::ir
