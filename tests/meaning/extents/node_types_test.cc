// Types that follow from definitions, where no rule of the IR ever said them.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(DerivedTypes, OperatorsWithoutARuleHaveThem) {
  expectShapes({
      {18, "float[B, 3, H, 8] x", "", "y = MaxPool <kernel_shape = [1, 2], strides = [1, 2]>(x)",
       "float[B, 3, H, 4]"},
      {18, "float[B, 8, H, W] x", "", "y = DepthToSpace <blocksize = 2>(x)",
       "float[B, 2, 2*H, 2*W]"},
      {18, "float[B, S, 4] x, int64[B] n", "",
       "y = ReverseSequence <batch_axis = 0, time_axis = 1>(x, n)", "float[B, S, 4]"},
      {18, "float[N, 4] x, bool[N] c", "", "y = Compress <axis = 0>(x, c)", "float[y[0], 4]"},
      {18, "float[A, B] x", "", "y = EyeLike <dtype = 7>(x)", "int64[A, B]"},
  });
}

TEST(DerivedTypes, IntegersGoThroughTablesAndReductions) {
  expectShapes({
      {18, "float[B, S, 4] x", "int64[2] a = {0, 2}",
       "s = Shape(x) t = Gather(s, a) y = ReduceProd <keepdims = 0>(t)", "int64[] {4*B}"},
      {18, "float[B, S] x", "int64[1] k = {1}, int64[1] v = {7}",
       "s = Shape(x) y = ScatterElements(s, k, v)", "int64[2]"},
      {18, "float[B, S] x", "int64 axis = {0}", "s = Shape(x) y = CumSum(s, axis)",
       "int64[2] {B, B + S}"},
  });
}

TEST(DerivedTypes, AnOperandWithoutARankGivesWhatAllRanksShare) {
  expectShapes({
      {18, "float[] x", "", "y = Shape(x)", "int64[?]"},
      {18, "float[] x", "", "y = Flatten(x)", "float[?, ?]"},
      {18, "float[] x, float[K, N] w", "", "y = Gemm(x, w)", "float[?, N]"},
      {18, "float[] x, float[B, 4] y", "", "z = Add(x, y)", "float"},
      {18, "float[] x", "", "y = Transpose <perm = [1, 0, 2]>(x)", "float[?, ?, ?]"},
  });
}

TEST(DerivedTypes, ADivisorThatMayBeZeroDividesExtentsOnly) {
  expectShapes({
      {18, "float[B, S] x", "int64[2] t = {0, -1}", "y = Reshape(x, t)", "float[B, S]"},
      {18, "float[B, S] x", "", "s = Shape(x) y = Div(s, s)", "int64[2]"},
      {18, "float[B, S] x", "int64[1] z = {0}", "s = Shape(x) y = Div(s, z)", "int64[2]"},
  });
}

} // namespace
} // namespace kvopt
