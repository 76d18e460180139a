// Operators that return their first operand with some elements changed.
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

llvm::Error inferScatterElements(ShapeContext& context) {
  const TensorType& data = context.type(0);
  if (data.hasRank()) {
    llvm::Expected<unsigned> axis = axisAttr(context, "axis", 0, data.rank());
    if (!axis)
      return axis.takeError();
    for (unsigned operand : {1u, 2u})
      if (llvm::Error error = requireRank(context, operand, data.rank()))
        return error;
  }
  return inferSameAsFirst(context);
}

llvm::Error inferTensorScatter(ShapeContext& context) {
  const TensorType& cache = context.type(0);
  const TensorType& update = context.type(1);
  if (cache.hasRank()) {
    llvm::Expected<unsigned> axis = axisAttr(context, "axis", -2, cache.rank());
    if (!axis)
      return axis.takeError();
    if (llvm::Error error = requireRank(context, 1, cache.rank()))
      return error;
    for (unsigned i = 0; update.hasRank() && i < cache.rank(); ++i)
      if (i != *axis)
        if (llvm::Error error = requireEqual(context, cache.dim(i), update.dim(i),
                                             "extents of past_cache and update"))
          return error;
  }
  return inferSameAsFirst(context);
}

} // namespace

void register_scatter(OpRegistry& registry) {
  define(registry, "ScatterElements", 11)
      .in("data")
      .in("indices")
      .in("updates")
      .out("output")
      .attr("axis", int64_t{0})
      .reuse(0, 0)
      .shape(inferScatterElements);
  define(registry, "ScatterElements", 16)
      .in("data")
      .in("indices")
      .in("updates")
      .out("output")
      .attr("axis", int64_t{0})
      .attr("reduction", "none")
      .reuse(0, 0)
      .shape(inferScatterElements);
  define(registry, "ScatterND", 11)
      .in("data")
      .in("indices")
      .in("updates")
      .out("output")
      .reuse(0, 0)
      .shape(inferSameAsFirst);
  define(registry, "ScatterND", 16)
      .in("data")
      .in("indices")
      .in("updates")
      .out("output")
      .attr("reduction", "none")
      .reuse(0, 0)
      .shape(inferSameAsFirst);
  define(registry, "TensorScatter", 24)
      .in("past_cache")
      .in("update")
      .in("write_indices?")
      .out("present_cache")
      .attr("axis", int64_t{-2})
      .attr("mode", "linear")
      .reuse(0, 0)
      .shape(inferTensorScatter);
  const std::pair<const char*, int64_t> running[] = {{"CumSum", 11}, {"CumProd", 26}};
  for (const auto& [name, since] : running)
    define(registry, name, since)
        .in("x")
        .in("axis")
        .out("y")
        .attr("exclusive", int64_t{0})
        .attr("reverse", int64_t{0})
        .shape(inferSameAsFirst);
  define(registry, "Trilu", 14)
      .in("input")
      .in("k?")
      .out("output")
      .attr("upper", int64_t{1})
      .shape(inferSameAsFirst);
}

} // namespace kvopt::ir
