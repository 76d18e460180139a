// Elementwise activations and softmax.
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

llvm::Error inferSoftmax(ShapeContext& context) {
  const TensorType& type = context.type(0);
  if (type.hasRank() && type.rank() != 0) {
    llvm::Expected<unsigned> axis = axisAttr(context, "axis", -1, type.rank());
    if (!axis)
      return axis.takeError();
  }
  return inferSameAsFirst(context);
}

// Until version 12 the operand is a matrix, split before `axis`, which may be the rank.
llvm::Error inferMatrixSoftmax(ShapeContext& context) {
  const TensorType& type = context.type(0);
  int64_t axis = context.node().intAttr("axis", 1);
  if (type.hasRank() && axis != int64_t{type.rank()} && !normalizedAxis(axis, type.rank()) &&
      type.rank() > 1)
    return context.error(fmt::format("axis {} lies outside rank {}", axis, type.rank()));
  return inferSameAsFirst(context);
}

} // namespace

void register_activation(OpRegistry& registry) {
  for (const char* name : {"Erf", "Gelu", "Tanh", "Sigmoid", "Relu"}) {
    bool isErf = llvm::StringRef(name) == "Erf";
    bool isGelu = llvm::StringRef(name) == "Gelu";
    OpDefBuilder builder = define(registry, name, isErf ? 9 : isGelu ? 20 : 6);
    builder.in(isErf || name[0] == 'T' ? "input" : "X").out(isErf ? "output" : "Y");
    builder.shape(inferSameAsFirst);
    if (isGelu)
      builder.attr("approximate", "none");
  }
  define(registry, "Swish", 24).in("X").out("Y").attr("alpha", 1.0f).shape(inferSameAsFirst);
  define(registry, "SwiGLU", 28)
      .in("A")
      .in("B")
      .out("Y")
      .attr("alpha", 1.0f)
      .shape(inferSameAsFirst);
  for (const char* name : {"Softmax", "LogSoftmax"}) {
    define(registry, name, 1)
        .in("input")
        .out("output")
        .attr("axis", int64_t{1})
        .shape(inferMatrixSoftmax);
    define(registry, name, 13)
        .in("input")
        .out("output")
        .attr("axis", int64_t{-1})
        .shape(inferSoftmax);
  }
}

} // namespace kvopt::ir
