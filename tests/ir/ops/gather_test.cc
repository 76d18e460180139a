// Shape rules of operators that pick elements by index.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(GatherShapes, Gather) {
  expectShapes({
      {13, "float[V, D] w, int64[B, S] i", "", "y = Gather(w, i)", "float[B, S, D]"},
      {13, "float[V, D] w, int64 i", "", "y = Gather <axis = -1>(w, i)", "float[V]"},
      {13, "float[V, D] w, int64[] i", "", "y = Gather(w, i)", "float"},
      {13, "float[B, S, 4] x", "int64[2] i = {-1, 0}", "s = Shape(x) y = Gather(s, i)",
       "int64[2] {4, B}"},
      {13, "float[B, S, 4] x", "int64 i = {7}", "s = Shape(x) y = Gather(s, i)", "int64[]"},
      {13, "float[V, D] w, int64 i", "", "y = Gather <axis = 2>(w, i)",
       "error: axis 2 is outside rank 2"},
      {13, "float w, int64 i", "", "y = Gather(w, i)", "error: axis 0 is outside rank 0"},
      {13, "float[A, B] x, int64[C, D] i", "", "y = GatherElements <axis = 1>(x, i)",
       "float[C, D]"},
      {13, "float[A, B] x, int64[C] i", "", "y = GatherElements(x, i)",
       "error: ranks of data float[A, B] and indices int64[C] differ"},
  });
}

TEST(GatherShapes, GatherND) {
  expectShapes({
      {12, "float[A, B, C] x, int64[N, 2] i", "", "y = GatherND(x, i)", "float[N, C]"},
      {12, "float[A, B, C] x, int64[A, N, 1] i", "", "y = GatherND <batch_dims = 1>(x, i)",
       "float[A, N, C]"},
      {12, "float[A, B, C] x, int64[N, K] i", "", "y = GatherND(x, i)", "float"},
      {12, "float[A, B, C] x, int64[N, 4] i", "", "y = GatherND(x, i)",
       "error: 4 indices into float[A, B, C]"},
      {12, "float[A, B, C] x, int64[N, 1] i", "", "y = GatherND <batch_dims = 2>(x, i)",
       "error: batch_dims 2 is outside the ranks"},
  });
}

TEST(GatherShapes, TopKAndMore) {
  expectShapes({
      {9, "float[B, V] x", "", "v, i = TopK <k = 5>(x)", "float[B, 5]; int64[B, 5]"},
      {11, "float[B, V] x", "int64[1] k = {5}", "v, i = TopK(x, k)", "float[B, 5]; int64[B, 5]"},
      {11, "float[B, V] x, int64[1] k", "", "v, i = TopK <axis = 0>(x, k)",
       "float[?, V]; int64[?, V]"},
      {11, "float[B, V] x, int64[1] k", "", "v, i = TopK <axis = 2>(x, k)",
       "error: axis 2 is outside rank 2"},
      {11, "float[] x, int64[1] k", "", "v, i = TopK(x, k)", "float; int64"},
      {13, "float[B, S, V] x", "", "y = ArgMax <axis = -1, keepdims = 0>(x)", "int64[B, S]"},
      {13, "float[B, S, V] x", "", "y = ArgMax(x)", "int64[1, S, V]"},
      {13, "float[B, S] x", "", "y = NonZero(x)", "int64[2, y[1]]"},
      {13, "float[] x", "", "y = NonZero(x)", "int64[?, y[1]]"},
      {13, "int64[B] i, float[2] v", "int64 d = {10}", "y = OneHot(i, d, v)", "float[B, 10]"},
      {13, "int64[B] i, int64 d, float[2] v", "", "y = OneHot <axis = 0>(i, d, v)", "float[?, B]"},
  });
}

} // namespace
} // namespace kvopt
