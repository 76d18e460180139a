// Shape rule of Pad.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(PadShapes, Pads) {
  expectShapes({
      {2, "float[B, 4] x", "", "y = Pad <pads = [0, 1, 0, 2]>(x)", "float[B, 7]"},
      {11, "float[B, 4] x", "int64[4] p = {1, 0, 0, -1}", "y = Pad(x, p)", "float[B + 1, 3]"},
      {11, "float[B, 4] x", "int64[4] p = {-1, 0, 0, 0}", "y = Pad(x, p)", "float[?, 4]"},
      {18, "float[B, 4] x", "int64[2] p = {1, 2}, int64[1] a = {-1}", "y = Pad(x, p, , a)",
       "float[B, 7]"},
      {18, "float[B, 4] x, int64[1] a", "int64[2] p = {1, 2}", "y = Pad(x, p, , a)", "float[?, ?]"},
      {11, "float[B, 4] x, int64[4] p", "", "y = Pad(x, p)", "float[?, ?]"},
      {11, "float[] x, int64[4] p", "", "y = Pad(x, p)", "float[?, ?]"},
      {11, "float[B, 4] x", "int64[3] p = {1, 0, 0}", "y = Pad(x, p)", "error: 3 pads for 2 axes"},
      {18, "float[B, 4] x", "int64[2] p = {1, 2}, int64[1] a = {2}", "y = Pad(x, p, , a)",
       "error: axis 2 is outside rank 2"},
  });
}

} // namespace
} // namespace kvopt
