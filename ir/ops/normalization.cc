// Normalizations over trailing axes.
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

// Results: the normalized tensor, then statistics with extent 1 for the normalized axes. The root
// mean square variants return the scale's element type.
llvm::Error inferNormalization(ShapeContext& context) {
  const TensorType& type = context.type(0);
  TensorType normalized = type;
  if (!context.node().is("LayerNormalization"))
    normalized.setElementType(context.element(1));
  context.setResult(0, std::move(normalized));
  int64_t stash = context.node().intAttr("stash_type", 1);
  TensorType statistics(stash > 0 && stash < 1000 ? static_cast<ElementType>(stash)
                                                  : ElementType::Undefined);
  if (type.hasRank()) {
    llvm::Expected<unsigned> axis = axisAttr(context, "axis", -1, type.rank());
    if (!axis)
      return axis.takeError();
    Shape shape = shapeOf(type);
    for (unsigned i = *axis; i < shape.size(); ++i)
      shape[i] = Dim::fixed(1);
    statistics.setShape(std::move(shape));
  }
  for (unsigned i = 1; i < context.resultCount(); ++i)
    context.setResult(i, statistics);
  return llvm::Error::success();
}

} // namespace

void register_normalization(OpRegistry& registry) {
  // ONNX Runtime defined LayerNormalization in ONNX's domain before ONNX did, and its optimizer
  // writes it into models of any opset.
  for (int64_t since : {1, 17}) {
    define(registry, "LayerNormalization", since)
        .in("X")
        .in("Scale")
        .in("B?")
        .out("Y")
        .out("Mean?")
        .out("InvStdDev?")
        .attr("axis", int64_t{-1})
        .attr("epsilon", 1e-5f)
        .attr("stash_type", int64_t{1})
        .shape(inferNormalization);
  }
  for (llvm::StringRef domain : {"", "com.microsoft"}) {
    define(registry, OpName(domain, "SimplifiedLayerNormalization"), 1)
        .in("X")
        .in("scale")
        .out("Y")
        .out("inv_std_var?")
        .attr("axis", int64_t{-1})
        .attr("epsilon", 1e-5f)
        .attr("stash_type", int64_t{1})
        .shape(inferNormalization);
  }
  define(registry, "RMSNormalization", 23)
      .in("X")
      .in("scale")
      .out("Y")
      .attr("axis", int64_t{-1})
      .attr("epsilon", 1e-5f)
      .attr("stash_type", int64_t{1})
      .shape(inferNormalization);
}

} // namespace kvopt::ir
