// Matrix products and convolution: MatMul, Gemm, Einsum, Conv.
#include "ir/op.h"
#include "support/string_ends.h"

#include "llvm/ADT/StringExtras.h"

#include <map>

namespace kvopt::ir {

void register_linear(OpRegistry& registry) {
  define(registry, "MatMul", 1).in("A").in("B").out("Y");
  for (int64_t since : {7, 11}) {
    define(registry, "Gemm", since)
        .in("A")
        .in("B")
        .in(since < 11 ? "C" : "C?")
        .out("Y")
        .attr("alpha", 1.0f)
        .attr("beta", 1.0f)
        .attr("transA", int64_t{0})
        .attr("transB", int64_t{0});
  }
  define(registry, "com.microsoft::FusedGemm", 1)
      .in("A")
      .in("B")
      .in("C?")
      .out("Y")
      .attr("alpha", 1.0f)
      .attr("beta", 1.0f)
      .attr("transA", int64_t{0})
      .attr("transB", int64_t{0})
      .attr("activation", AttributeKind::String)
      .attr("activation_alpha", AttributeKind::Float)
      .attr("activation_beta", AttributeKind::Float)
      .attr("activation_gamma", AttributeKind::Float);
  define(registry, "Einsum", 12)
      .in("Inputs+")
      .out("Output")
      .requiredAttr("equation", AttributeKind::String);
  define(registry, "Conv", 1)
      .in("X")
      .in("W")
      .in("B?")
      .out("Y")
      .attr("auto_pad", "NOTSET")
      .attr("dilations", AttributeKind::Ints)
      .attr("group", int64_t{1})
      .attr("kernel_shape", AttributeKind::Ints)
      .attr("pads", AttributeKind::Ints)
      .attr("strides", AttributeKind::Ints);
}

} // namespace kvopt::ir
