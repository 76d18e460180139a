// Reductions over axes.
#include "ir/op.h"

namespace kvopt::ir {
namespace {

void defineReduction(OpRegistry& registry, const char* name, int64_t axesOperandSince) {
  define(registry, name, 1)
      .in("data")
      .out("reduced")
      .attr("axes", AttributeKind::Ints)
      .attr("keepdims", int64_t{1});
  define(registry, name, axesOperandSince)
      .in("data")
      .in("axes?")
      .out("reduced")
      .attr("keepdims", int64_t{1})
      .attr("noop_with_empty_axes", int64_t{0});
}

} // namespace

void register_reduction(OpRegistry& registry) {
  defineReduction(registry, "ReduceSum", 13);
  defineReduction(registry, "ReduceMean", 18);
  defineReduction(registry, "ReduceMax", 18);
  defineReduction(registry, "ReduceMin", 18);
  defineReduction(registry, "ReduceProd", 18);
  for (const char* name : {"ReduceSumSquare", "ReduceL1", "ReduceL2"})
    defineReduction(registry, name, 18);
}

} // namespace kvopt::ir
