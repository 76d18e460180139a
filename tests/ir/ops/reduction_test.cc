// Shape rules of reductions.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(ReductionShapes, AxesAsAttributeOrOperand) {
  expectShapes({
      {11, "float[B, S, D] x", "", "y = ReduceSum <axes = [-1]>(x)", "float[B, S, 1]"},
      {13, "float[B, S, D] x", "int64[1] a = {1}", "y = ReduceSum <keepdims = 0>(x, a)",
       "float[B, D]"},
      {17, "float[B, S, D] x", "", "y = ReduceMean <axes = [1, 2], keepdims = 0>(x)", "float[B]"},
      {18, "float[B, S, D] x", "int64[2] a = {1, 2}", "y = ReduceMean(x, a)", "float[B, 1, 1]"},
      {18, "float[B, S, D] x", "", "y = ReduceMax <keepdims = 0>(x)", "float[]"},
      {18, "float[B, S, D] x", "", "y = ReduceMax <noop_with_empty_axes = 1>(x)", "float[B, S, D]"},
      {18, "float[B, S, D] x, int64[1] a", "", "y = ReduceMin(x, a)", "float[?, ?, ?]"},
      {18, "float[B, S, D] x, int64[1] a", "", "y = ReduceMin <keepdims = 0>(x, a)", "float"},
      {18, "float[] x", "int64[1] a = {5}", "y = ReduceMin(x, a)", "float"},
      {18, "float[B, S] x", "int64[1] a = {2}", "y = ReduceMin(x, a)",
       "error: axis 2 is outside rank 2"},
      {18, "float[B, S] x", "int64[2] a = {1, -1}", "y = ReduceMin(x, a)",
       "error: axis 1 occurs twice"},
  });
}

TEST(ReductionShapes, ReductionsOfShapes) {
  expectShapes({
      {18, "float[B, S, 4] x", "", "s = Shape(x) y = ReduceProd <keepdims = 0>(s)",
       "int64[] {4*B*S}"},
      {18, "float[B, S, 4] x", "", "s = Shape(x) y = ReduceSum(s)", "int64[1] {B + S + 4}"},
      {18, "float[B, S, 4] x", "", "s = Shape(x) y = ReduceMax(s)", "int64[1]"},
      {18, "float[B, \"B + 2\"] x", "", "s = Shape(x) y = ReduceMax(s)", "int64[1] {B + 2}"},
      {18, "float[B, ?] x", "", "s = Shape(x) y = ReduceProd(s)", "int64[1]"},
      {18, "", "int32[2] c = {65536, 65536}", "y = ReduceProd(c)", "int32[1]"},
      {18, "float x", "", "s = Shape(x) y = ReduceProd(s)", "int64[1] {1}"},
  });
}

} // namespace
} // namespace kvopt
