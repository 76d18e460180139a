// Shape rules of Concat, Split and Slice.
#include "tests/ir/shapes/shape_rule.h"
#include "tests/support/small_slices.h"

namespace kvopt {
namespace {

TEST(SlicingShapes, Concat) {
  expectShapes({
      {13, "float[B, P, D] x, float[B, S, D] y", "", "z = Concat <axis = -2>(x, y)",
       "float[B, P + S, D]"},
      {13, "float[?, P, D] x, float[B, S, 4] y", "", "z = Concat <axis = 1>(x, y)",
       "float[B, P + S, 4]"},
      {13, "float[] x, float[B, S, 4] y", "", "z = Concat <axis = 1>(x, y)", "float[B, ?, 4]"},
      {13, "float[] x, float[] y", "", "z = Concat <axis = 1>(x, y)", "float"},
      {13, "float[B, 3] x, float[B, 4] y", "", "z = Concat <axis = 0>(x, y)",
       "error: extents of axis 1 differ: 3 and 4"},
      {13, "float[B, 3] x, float[B] y", "", "z = Concat <axis = 0>(x, y)",
       "error: ranks of float[B, 3] and float[B] differ"},
      {13, "float[B, 3] x", "", "z = Concat <axis = 2>(x)", "error: axis 2 is outside rank 2"},
      {13, "float[B, S] x, int64[1] k", "int64[1] c = {-1}",
       "s = Shape(x) y = Concat <axis = 0>(s, k, c)", "int64[4] {B, S, ?, -1}"},
      {13, "float[B, S] x, int64[N] k", "", "s = Shape(x) y = Concat <axis = 0>(s, k)",
       "int64[N + 2]"},
  });
}

TEST(SlicingShapes, Split) {
  expectShapes({
      {11, "float[B, 6] x", "", "a, b = Split <axis = 1, split = [2, 4]>(x)",
       "float[B, 2]; float[B, 4]"},
      {11, "float[B, 6] x", "", "a, b = Split <axis = 1, split = [2, 3]>(x)",
       "error: the sum of sizes and the extent differ: 5 and 6"},
      {11, "float[B, 6] x", "", "a, b, c, d = Split <axis = 1>(x)",
       "error: 6 does not split into 4 equal parts"},
      {13, "float[B, 6] x", "int64[2] s = {2, 4}", "a, b = Split <axis = -1>(x, s)",
       "float[B, 2]; float[B, 4]"},
      {13, "float[B, 6] x, int64[2] s", "", "a, b = Split <axis = -1>(x, s)",
       "float[B, ?]; float[B, ?]"},
      {13, "float[B, 6] x", "int64[3] s = {2, 2, 2}", "a, b = Split <axis = -1>(x, s)",
       "error: 3 sizes for 2 results"},
      {13, "float[B, 6] x", "int64[2] s = {-2, 8}", "a, b = Split <axis = -1>(x, s)",
       "error: size -2 is negative"},
      {13, "float[\"2*N\", 6] x", "", "a, b = Split(x)", "float[N, 6]; float[N, 6]"},
      {13, "float[N, 6] x", "", "a, b = Split(x)", "float[?, 6]; float[?, 6]"},
      {18, "float[7] x", "", "a, b = Split <num_outputs = 2>(x)", "float[4]; float[3]"},
      {18, "float[5] x", "", "a, b, c, d = Split <num_outputs = 4>(x)",
       "float[?]; float[?]; float[?]; float[?]"},
      {18, "float[7] x", "", "a, b = Split <num_outputs = 3>(x)", "error: 3 sizes for 2 results"},
      {13, "float[] x", "", "a, b = Split(x)", "float; float"},
      {13, "float[B, S, 4] x", "int64[2] s = {1, 2}", "t = Shape(x) a, b = Split(t, s)",
       "int64[1] {B}; int64[2] {S, 4}"},
  });
}

TEST(SlicingShapes, EverySmallSliceHasTheLengthThatOnnxSays) {
  forEachSmallSlice([](const SmallSlice& slice) {
    const std::string inputs = formatted("float[{}] x", slice.extent);
    const std::string constants =
        formatted("int64[1] a = {{{}}}, int64[1] b = {{{}}}, int64[1] c = {{0}}, int64[1] d = "
                  "{{{}}}",
                  slice.start, slice.end, slice.step);
    EXPECT_EQ(inferredText({13, inputs.c_str(), constants.c_str(), "y = Slice(x, a, b, c, d)", ""}),
              formatted("float[{}]", slice.indices().size()))
        << slice.text();
  });
}

TEST(SlicingShapes, SliceUntilOpset9) {
  expectShapes({
      {9, "float[B, 8] x", "", "y = Slice <axes = [1], starts = [2], ends = [-1]>(x)",
       "float[B, 5]"},
      {9, "float[6, 8] x", "", "y = Slice <starts = [2, 0], ends = [100, 3]>(x)", "float[4, 3]"},
  });
}

TEST(SlicingShapes, Slice) {
  expectShapes({
      {13, "float[B, \"P + S\", 64] x", "int64[1] s = {0}, int64[1] e = {32}, int64[1] a = {2}",
       "y = Slice(x, s, e, a)", "float[B, P + S, 32]"},
      {13, "float[B, T] x",
       "int64[1] s = {0}, int64[1] e = {9223372036854775807}, int64[1] a = {1}",
       "y = Slice(x, s, e, a)", "float[B, T]"},
      {13, "float[B, \"T + 1\"] x",
       "int64[1] s = {-1}, int64[1] e = {9223372036854775807}, int64[1] a = {1}",
       "y = Slice(x, s, e, a)", "float[B, 1]"},
      {13, "float[B, T] x",
       "int64[1] s = {-1}, int64[1] e = {9223372036854775807}, int64[1] a = {1}",
       "y = Slice(x, s, e, a)", "float[B, ?]"},
      {13, "float[B, T] x", "int64[1] s = {0}, int64[1] e = {4}, int64[1] a = {1}",
       "y = Slice(x, s, e, a)", "float[B, ?]"},
      {13, "float[B, \"T + 4\"] x",
       "int64[1] s = {4}, int64[1] e = {9223372036854775807}, int64[1] a = {1}",
       "y = Slice(x, s, e, a)", "float[B, T]"},
      {13, "float[10] x", "int64[1] s = {1}, int64[1] e = {9}, int64[1] a = {0}, int64[1] t = {3}",
       "y = Slice(x, s, e, a, t)", "float[3]"},
      {13, "float[10] x",
       "int64[1] s = {-1}, int64[1] e = {-9223372036854775808}, int64[1] a = {0}, int64[1] t = "
       "{-4}",
       "y = Slice(x, s, e, a, t)", "float[3]"},
      {13, "float[T] x",
       "int64[1] s = {-1}, int64[1] e = {-9223372036854775808}, int64[1] a = {0}, int64[1] t = "
       "{-1}",
       "y = Slice(x, s, e, a, t)", "float[T]"},
      {13, "float[0] x",
       "int64[1] s = {-1}, int64[1] e = {-9223372036854775808}, int64[1] a = {0}, int64[1] t = "
       "{-1}",
       "y = Slice(x, s, e, a, t)", "float[0]"},
      {13, "float[10] x, int64[1] t", "int64[1] s = {1}, int64[1] e = {9}, int64[1] a = {0}",
       "y = Slice(x, s, e, a, t)", "float[?]"},
      {13, "float[B, 10] x, int64[1] s, int64[1] e", "int64[1] a = {1}", "y = Slice(x, s, e, a)",
       "float[B, y[1]]"},
      // Such an extent is that of everything that is computed of the slice.
      {13, "float[B, 10] x, int64[1] s, int64[1] e", "int64[1] a = {1}",
       "rows = Slice(x, s, e, a) shape = Shape(rows) y = Expand(rows, shape)", "float[B, rows[1]]"},
      // Branches may use one name.
      {13, "bool c, float[10] x, int64[1] s, int64[1] e", "int64[1] a = {0}",
       "y = If <then_branch = t () => (r) { r = Slice(x, s, e, a) }, else_branch = o () => (r) { r "
       "= Slice(x, e, s, a) }>(c)",
       "float[?]"},
      {13, "float[B, 10] x, int64[1] s, int64[1] e, int64[1] a", "", "y = Slice(x, s, e, a)",
       "float[?, ?]"},
      {13, "float[10] x", "int64[1] s = {1}, int64[1] e = {9}, int64[1] a = {0}, int64[1] t = {0}",
       "y = Slice(x, s, e, a, t)", "error: a step is 0"},
      {13, "float[10] x", "int64[1] s = {1}, int64[2] e = {9, 9}, int64[1] a = {0}",
       "y = Slice(x, s, e, a)", "error: starts, ends, axes and steps have different lengths"},
      {13, "float[10] x", "int64[1] s = {1}, int64[1] e = {9}, int64[1] a = {1}",
       "y = Slice(x, s, e, a)", "error: axis 1 is outside rank 1"},
      {13, "float[A, B, C, D] x",
       "int64[1] s = {-1}, int64[1] e = {-5}, int64[1] a = {0}, int64[1] t = {-2}",
       "z = Shape(x) y = Slice(z, s, e, a, t)", "int64[2] {D, B}"},
  });
}

} // namespace
} // namespace kvopt
