// FlexAttention of the domain ai.onnx.preview, which contains ONNX's experimental operators.
#include "ir/ops/kvopt/attention_shapes.h"

namespace kvopt::ir {
namespace {

llvm::Error inferFlexAttention(ShapeContext& context) {
  if (llvm::Error error = checkAttentionOperands(context))
    return error;
  for (const char* name : {"score_mod", "prob_mod"}) {
    const Attribute* attribute = context.node().attribute(name);
    if (!attribute)
      continue;
    if (attribute->graphs().size() != 1 || attribute->graphs().front()->inputs().size() != 1 ||
        attribute->graphs().front()->outputs().size() != 1)
      return context.error(formatted("{} is not a graph of one input and one output", name));
  }
  context.setResult(0, attentionResultType(context));
  return llvm::Error::success();
}

} // namespace

void register_flex_attention(OpRegistry& registry) {
  define(registry, "ai.onnx.preview::FlexAttention", 1)
      .in("Q")
      .in("K")
      .in("V")
      .out("Y")
      .attr("scale", AttributeKind::Float)
      .attr("softmax_precision", AttributeKind::Int)
      .attr("score_mod", AttributeKind::Graph)
      .attr("prob_mod", AttributeKind::Graph)
      .shape(inferFlexAttention);
}

} // namespace kvopt::ir
