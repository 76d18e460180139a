// Conversions between numbers and 8- or 16-bit codes.
#include "ir/op.h"

namespace kvopt::ir {

void register_quantization(OpRegistry& registry) {
  for (int64_t since : {10, 13, 21, 23}) {
    OpDefBuilder dequantize = define(registry, "DequantizeLinear", since);
    dequantize.in("x").in("x_scale").in("x_zero_point?").out("y");
    OpDefBuilder quantize = define(registry, "QuantizeLinear", since);
    quantize.in("x").in("y_scale").in("y_zero_point?").out("y");
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
  define(registry, "DynamicQuantizeLinear", 11).in("x").out("y").out("y_scale").out("y_zero_point");
  define(registry, "MatMulInteger", 10)
      .in("A")
      .in("B")
      .in("a_zero_point?")
      .in("b_zero_point?")
      .out("Y");
  for (int64_t since : {10, 21}) {
    OpDefBuilder product = define(registry, "QLinearMatMul", since);
    for (const char* name : {"a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point",
                             "y_scale", "y_zero_point"})
      product.in(name);
    product.out("y");
  }
}

} // namespace kvopt::ir
