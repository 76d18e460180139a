// Shape rules of matrix products, Einsum and Conv.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(LinearShapes, MatMul) {
  expectShapes({
      {13, "float[B, H, M, K] a, float[K, N] b", "", "y = MatMul(a, b)", "float[B, H, M, N]"},
      {13, "float[B, 1, M, K] a, float[H, K, N] b", "", "y = MatMul(a, b)", "float[B, H, M, N]"},
      {13, "float[K] a, float[B, K, N] b", "", "y = MatMul(a, b)", "float[B, N]"},
      {13, "float[K] a, float[K] b", "", "y = MatMul(a, b)", "float[]"},
      {13, "float[B, M, 3] a, float[4, N] b", "", "y = MatMul(a, b)",
       "error: inner extents differ: 3 and 4"},
      {13, "float[2, M, K] a, float[3, K, N] b", "", "y = MatMul(a, b)",
       "error: extents do not broadcast: 2 and 3"},
      {13, "float a, float[K] b", "", "y = MatMul(a, b)", "error: a factor is a scalar"},
      {13, "float[] a, float[K, N] b", "", "y = MatMul(a, b)", "float"},
  });
}

TEST(LinearShapes, Gemm) {
  expectShapes({
      {13, "float[M, K] a, float[N, K] b", "", "y = Gemm <transB = 1>(a, b)", "float[M, N]"},
      {13, "float[K, M] a, float[] b", "", "y = Gemm <transA = 1>(a, b)", "float[M, ?]"},
      {13, "float[M, 3] a, float[4, N] b", "", "y = Gemm(a, b)",
       "error: inner extents differ: 3 and 4"},
      {13, "float[B, M, K] a, float[K, N] b", "", "y = Gemm(a, b)",
       "error: operand 0 is float[B, M, K], its rank should be 2"},
  });
}

TEST(LinearShapes, Einsum) {
  expectShapes({
      {12, "float[B, H, S, D] q, float[B, H, T, D] k", "",
       "y = Einsum <equation = \"bhsd,bhtd->bhst\">(q, k)", "float[B, H, S, T]"},
      {12, "float[B, N] x, float[N, C] y", "", "z = Einsum <equation = \"ij, jk\">(x, y)",
       "float[B, C]"},
      {12, "float[N] x, float[N] y", "", "z = Einsum <equation = \"i,i->\">(x, y)", "float[]"},
      {12, "float[B, N] x, float[N, C] y", "", "z = Einsum <equation = \"...j,jk->...k\">(x, y)",
       "float[B, C]"},
      {12, "float[N] x, float[M] y", "", "z = Einsum <equation = \"i,i->i\">(x, y)", "float[?]"},
      {12, "float[3] x, float[4] y", "", "z = Einsum <equation = \"i,i->i\">(x, y)",
       "error: extents of index 'i' differ: 3 and 4"},
      {12, "float[N] x", "", "z = Einsum <equation = \"i->j\">(x)",
       "error: the result has an index that no operand has"},
      {12, "float[N] x", "", "z = Einsum <equation = \"i->ii\">(x)",
       "error: the result has index 'i' twice"},
      {12, "float[N] x", "", "z = Einsum <equation = \"i1->i\">(x)",
       "error: the equation has a '1'"},
      {12, "float[N] x", "", "z = Einsum <equation = \"i,j->ij\">(x)",
       "error: the equation has 2 terms for 1 operands"},
      {12, "float[N] x", "", "z = Einsum <equation = \"ij->ij\">(x)",
       "error: operand 0 is float[N], its term is 'ij'"},
  });
}

TEST(LinearShapes, Conv) {
  expectShapes({
      {11, "float[B, 3, L] x, float[8, 3, 5] w", "", "y = Conv <pads = [2, 2]>(x, w)",
       "float[B, 8, L]"},
      {11, "float[B, 3, L] x, float[8, 3, 5] w", "",
       "y = Conv <pads = [4, 0], dilations = [1]>(x, w)", "float[B, 8, L]"},
      {11, "float[B, 3, L] x, float[8, 3, 5] w", "", "y = Conv(x, w)", "float[B, 8, ?]"},
      {11, "float[B, 3, L] x, float[8, 3, 3] w", "",
       "y = Conv <strides = [2], pads = [1, 1]>(x, w)", "float[B, 8, ?]"},
      {11, "float[B, 3, 7, 8] x, float[8, 3, 3, 3] w", "",
       "y = Conv <strides = [2, 1], dilations = [1, 2]>(x, w)", "float[B, 8, 3, 4]"},
      {11, "float[B, 3, 7] x, float[8, 3, 3] w", "",
       "y = Conv <auto_pad = \"SAME_UPPER\", strides = [2]>(x, w)", "float[B, 8, 4]"},
      {11, "float[B, 3, L] x, float[] w", "", "y = Conv(x, w)", "float[B, ?, ?]"},
      {11, "float[B, 3] x, float[8, 3] w", "", "y = Conv(x, w)",
       "error: float[B, 3] has no spatial axes"},
      {11, "float[B, 3, L] x, float[8, 3, 3] w", "", "y = Conv <pads = [1]>(x, w)",
       "error: pads has 1 numbers, not 2"},
      {11, "float[B, 3, 8] x, float[8, 3, 3] w", "",
       "y = Conv <dilations = [9223372036854775807]>(x, w)", "float[B, 8, ?]"},
  });
}

} // namespace
} // namespace kvopt
