// Shape rules of Reshape and its relatives.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(ReshapeShapes, Reshape) {
  expectShapes({
      {13, "float[B, S, 512] x", "int64[4] t = {0, 0, 8, -1}", "y = Reshape(x, t)",
       "float[B, S, 8, 64]"},
      {13, "float[B, S, 8, 64] x", "int64[3] t = {0, -1, 512}", "y = Reshape(x, t)",
       "float[B, S, 512]"},
      {13, "float[B, S, 6] x", "int64[2] t = {-1, 4}", "y = Reshape(x, t)", "float[?, 4]"},
      {13, "float[6] x", "int64[2] t = {-1, 4}", "y = Reshape(x, t)",
       "error: element counts differ: 4 and 6"},
      {13, "float[6] x", "int64[2] t = {2, 4}", "y = Reshape(x, t)",
       "error: element counts differ: 8 and 6"},
      {13, "float[6] x", "int64[2] t = {-1, -1}", "y = Reshape(x, t)",
       "error: the target shape has two extents of -1"},
      {13, "float[6] x", "int64[1] t = {-2}", "y = Reshape(x, t)",
       "error: the target shape has extent -2"},
      {13, "float[6] x", "int64[2] t = {6, 0}", "y = Reshape(x, t)",
       "error: extent 1 of the target shape copies an axis that float[6] does not have"},
      {14, "float[0, 6] x", "int64[2] t = {3, 0}", "y = Reshape <allowzero = 1>(x, t)",
       "float[3, 0]"},
      {13, "float[] x", "int64[2] t = {0, -1}", "y = Reshape(x, t)", "float[?, ?]"},
      {13, "float[B] x, int64[3] t", "", "y = Reshape(x, t)", "float[?, ?, ?]"},
      {13, "float[B] x, int64[N] t", "", "y = Reshape(x, t)", "float"},
      {13, "float[B, S] x", "int64[1] t = {-1}", "s = Size(x) y = Reshape(s, t)", "int64[1] {B*S}"},
      {13, "", "int64[1] t = {-1}, int64[1] i = {2}, int64 d = {4}, int64[2] v = {1, 3}",
       "h = OneHot(i, d, v) y = Reshape(h, t)", "int64[4] {1, 1, 3, 1}"},
      {13, "", "int64[1] t = {-1}, int64[2] i = {-1, 5}, int64 d = {2}, int64[2] v = {0, 7}",
       "h = OneHot(i, d, v) y = Reshape(h, t)", "int64[4] {0, 7, 0, 0}"},
      {13, "", "int64[1] t = {-1}, int64[2] i = {0, 1}, int64 d = {2}, int64[2] v = {0, 7}",
       "h = OneHot <axis = 0>(i, d, v) y = Reshape(h, t)", "int64[4] {7, 0, 0, 7}"},
      {13, "int64[1] i", "int64[1] t = {-1}, int64 d = {4}, int64[2] v = {1, 3}",
       "h = OneHot(i, d, v) y = Reshape(h, t)", "int64[4]"},
  });
}

TEST(ReshapeShapes, Flatten) {
  expectShapes({
      {13, "float[A, B, C] x", "", "y = Flatten <axis = -1>(x)", "float[A*B, C]"},
      {13, "float[A, B, C] x", "", "y = Flatten <axis = 0>(x)", "float[1, A*B*C]"},
      {13, "float[A, B, C] x", "", "y = Flatten <axis = 4>(x)", "error: axis 4 is outside rank 3"},
      {13, "float[] x", "", "y = Flatten(x)", "float[?, ?]"},
  });
}

TEST(ReshapeShapes, SqueezeAndUnsqueeze) {
  expectShapes({
      {11, "float[B, 1, D] x", "", "y = Squeeze <axes = [1]>(x)", "float[B, D]"},
      {13, "float[B, 1, D] x", "int64[1] a = {-2}", "y = Squeeze(x, a)", "float[B, D]"},
      {13, "float[B, N, D] x", "int64[1] a = {1}", "y = Squeeze(x, a)", "float[B, D]"},
      {13, "float[B, 2, D] x", "int64[1] a = {1}", "y = Squeeze(x, a)",
       "error: axis 1 of float[B, 2, D] is not 1: 2 and 1"},
      {13, "float[2, 1, 3] x", "", "y = Squeeze(x)", "float[2, 3]"},
      {13, "float[B, 1, 3] x", "", "y = Squeeze(x)", "float"},
      {13, "float[B, 1, D] x, int64[1] a", "", "y = Squeeze(x, a)", "float[?, ?]"},
      {11, "float[B, D] x", "", "y = Unsqueeze <axes = [0, -1]>(x)", "float[1, B, D, 1]"},
      {13, "float[B, D] x", "int64[2] a = {1, 2}", "y = Unsqueeze(x, a)", "float[B, 1, 1, D]"},
      {13, "float[B, D] x, int64[1] a", "", "y = Unsqueeze(x, a)", "float[?, ?, ?]"},
      {13, "float[B, D] x", "int64[1] a = {3}", "y = Unsqueeze(x, a)",
       "error: axis 3 is outside rank 3"},
      {13, "float[B, D] x", "int64[2] a = {1, 1}", "y = Unsqueeze(x, a)",
       "error: axis 1 occurs twice"},
  });
}

TEST(ReshapeShapes, Transpose) {
  expectShapes({
      {13, "float[A, B, C] x", "", "y = Transpose(x)", "float[C, B, A]"},
      {13, "float[A, B, C] x", "", "y = Transpose <perm = [0, 2, 1]>(x)", "float[A, C, B]"},
      {13, "float[A, B, C] x", "", "y = Transpose <perm = [0, 1]>(x)",
       "error: perm has 2 axes, float[A, B, C] has 3"},
      {13, "float[A, B] x", "", "y = Transpose <perm = [1, 1]>(x)",
       "error: perm is not an order of the axes"},
      {13, "float[] x", "", "y = Transpose <perm = [1, 0]>(x)", "float[?, ?]"},
  });
}

TEST(ReshapeShapes, ExpandAndTile) {
  expectShapes({
      {13, "float[B, 1, 4] x", "int64[4] t = {2, 1, 3, 1}", "y = Expand(x, t)",
       "float[2, B, 3, 4]"},
      {13, "float[B, 3] x", "int64[1] t = {4}", "y = Expand(x, t)",
       "error: extents do not broadcast: 3 and 4"},
      {13, "float[1] x, int64[2] t", "", "y = Expand(x, t)", "float[?, ?]"},
      {13, "", "int64[1] c = {5}, int64[1] t = {3}", "y = Expand(c, t)", "int64[3] {5, 5, 5}"},
      {13, "float[N] x", "int64[1] c = {5}", "t = Shape(x) y = Expand(c, t)", "int64[N]"},
      {13, "float[B, 3] x", "int64[2] r = {2, 3}", "y = Tile(x, r)", "float[2*B, 9]"},
      {13, "float[B, 3] x, int64[2] r", "", "y = Tile(x, r)", "float[?, ?]"},
      {13, "float[B, 3] x", "int64[3] r = {2, 3, 4}", "y = Tile(x, r)",
       "error: 3 repeats for float[B, 3]"},
      {13, "", "int64[2] c = {5, 6}, int64[1] r = {2}", "y = Tile(c, r)", "int64[4] {5, 6, 5, 6}"},
  });
}

} // namespace
} // namespace kvopt
