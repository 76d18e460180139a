// Shape rules of operators that change some elements.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(ScatterShapes, Scatter) {
  expectShapes({
      {16, "float[A, B] x, int64[C, D] i, float[C, D] u", "",
       "y = ScatterElements <axis = 1>(x, i, u)", "float[A, B]"},
      {16, "float[A, B] x, int64[C, D] i, float[C, D] u", "",
       "y = ScatterElements <axis = 2>(x, i, u)", "error: axis 2 is outside rank 2"},
      {16, "float[A, B] x, int64[C] i, float[C] u", "", "y = ScatterElements(x, i, u)",
       "error: operand 1 is int64[C], its rank should be 2"},
      {16, "float[A, B] x, int64[N, 1] i, float[N, B] u", "", "y = ScatterND(x, i, u)",
       "float[A, B]"},
      {14, "float[A, B] x, int64 k", "", "y = Trilu(x, k)", "float[A, B]"},
      {13, "float[A, B] x, int64 k", "", "y = Trilu(x, k)", "undefined"},
      {14, "int64[B, S] x", "int64 k = {1}", "y = CumSum(x, k)", "int64[B, S]"},
  });
}

TEST(ScatterShapes, TensorScatter) {
  expectShapes({
      {24, "float[B, 2, C, D] x, float[B, 2, S, D] u, int64[B] w", "", "y = TensorScatter(x, u, w)",
       "float[B, 2, C, D]"},
      {24, "float[B, 2, C, 8] x, float[B, 2, S, 9] u", "", "y = TensorScatter(x, u)",
       "error: extents of past_cache and update differ: 8 and 9"},
      {24, "float[B, C, D] x, float[B, 2, S, D] u", "", "y = TensorScatter(x, u)",
       "error: operand 1 is float[B, 2, S, D], its rank should be 3"},
  });
}

} // namespace
} // namespace kvopt
