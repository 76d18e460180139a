// Conversions between numbers and 8- or 16-bit codes.
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

llvm::Error inferDequantizeLinear(ShapeContext& context) {
  TensorType type = context.type(0);
  const int64_t asked = context.node().intAttr("output_dtype", 0);
  type.setElementType(asked > 0 && asked < 1000 ? static_cast<ElementType>(asked)
                                                : context.element(1));
  context.setResult(0, std::move(type));
  return llvm::Error::success();
}

// uint8 unless a zero point or output_dtype selects another type.
llvm::Error inferQuantizeLinear(ShapeContext& context) {
  TensorType type = context.type(0);
  const int64_t asked = context.node().intAttr("output_dtype", 0);
  type.setElementType(context.has(2)              ? context.element(2)
                      : asked > 0 && asked < 1000 ? static_cast<ElementType>(asked)
                                                  : ElementType::UInt8);
  context.setResult(0, std::move(type));
  return llvm::Error::success();
}

llvm::Error inferDynamicQuantizeLinear(ShapeContext& context) {
  TensorType type = context.type(0);
  type.setElementType(ElementType::UInt8);
  context.setResult(0, std::move(type));
  context.setResult(1, TensorType(ElementType::Float, Shape{}));
  context.setResult(2, TensorType(ElementType::UInt8, Shape{}));
  return llvm::Error::success();
}

llvm::Error inferMatMulInteger(ShapeContext& context) {
  auto shape = matMulShape(context, context.type(0), context.type(1));
  if (!shape)
    return shape.takeError();
  context.setResult(0, typeOf(ElementType::Int32, std::move(*shape)));
  return llvm::Error::success();
}

// The result has the type of y's zero point.
llvm::Error inferQLinearMatMul(ShapeContext& context) {
  auto shape = matMulShape(context, context.type(0), context.type(3));
  if (!shape)
    return shape.takeError();
  context.setResult(0, typeOf(context.element(7), std::move(*shape)));
  return llvm::Error::success();
}

} // namespace

void register_quantization(OpRegistry& registry) {
  for (int64_t since : {10, 13, 21, 23}) {
    OpDefBuilder dequantize = define(registry, "DequantizeLinear", since);
    dequantize.in("x").in("x_scale").in("x_zero_point?").out("y").shape(inferDequantizeLinear);
    OpDefBuilder quantize = define(registry, "QuantizeLinear", since);
    quantize.in("x").in("y_scale").in("y_zero_point?").out("y").shape(inferQuantizeLinear);
    for (OpDefBuilder* builder : {&dequantize, &quantize}) {
      if (since >= 13)
        builder->attr("axis", int64_t{1});
      if (since >= 21)
        builder->attr("block_size", int64_t{0});
    }
    if (since >= 13)
      quantize.attr("saturate", int64_t{1});
    if (since >= 21)
      quantize.attr("output_dtype", int64_t{0});
    if (since >= 23) {
      quantize.attr("precision", int64_t{0});
      dequantize.attr("output_dtype", int64_t{0});
    }
  }
  define(registry, "DynamicQuantizeLinear", 11)
      .in("x")
      .out("y")
      .out("y_scale")
      .out("y_zero_point")
      .shape(inferDynamicQuantizeLinear);
  define(registry, "MatMulInteger", 10)
      .in("A")
      .in("B")
      .in("a_zero_point?")
      .in("b_zero_point?")
      .out("Y")
      .shape(inferMatMulInteger);
  for (int64_t since : {10, 21}) {
    OpDefBuilder product = define(registry, "QLinearMatMul", since);
    for (const char* name : {"a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point",
                             "y_scale", "y_zero_point"})
      product.in(name);
    product.out("y").shape(inferQLinearMatMul);
  }
}

} // namespace kvopt::ir
