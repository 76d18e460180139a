// Shape rules of comparisons and selection, and what they prove of extents.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(LogicShapes, Comparisons) {
  expectShapes({
      {13, "float[B, 1] x, float[S] y", "", "z = Less(x, y)", "bool[B, S]"},
      {13, "float[2] x, float[3] y", "", "z = Equal(x, y)",
       "error: operand 1 of type float[3] does not broadcast: 2 and 3"},
      {13, "float[B, \"S + 1\", S] x", "int64[3] c = {4, 0, 0}", "s = Shape(x) y = Equal(s, c)",
       "bool[3] {?, 0, ?}"},
      {13, "float[B, \"S + 1\", S] x", "int64 c = {0}", "s = Shape(x) y = Greater(s, c)",
       "bool[3] {?, 1, ?}"},
      {13, "float[B, S] x", "int64 c = {0}", "s = Shape(x) y = GreaterOrEqual(s, c)",
       "bool[2] {1, 1}"},
      {13, "float[B, S] x", "int64 c = {0}", "s = Shape(x) y = Less(s, c)", "bool[2] {0, 0}"},
      {13, "float[B, S] x", "int64 c = {-1}", "s = Shape(x) y = LessOrEqual(s, c)",
       "bool[2] {0, 0}"},
  });
}

TEST(LogicShapes, BooleanOperators) {
  expectShapes({
      {13, "", "bool[2] a = {1, 0}, bool[2] b = {1, 1}", "y = And(a, b)", "bool[2] {1, 0}"},
      {13, "", "bool[2] a = {1, 0}, bool[2] b = {0, 0}", "y = Or(a, b)", "bool[2] {1, 0}"},
      {13, "", "bool[2] a = {1, 0}, bool[2] b = {1, 1}", "y = Xor(a, b)", "bool[2] {0, 1}"},
      {13, "", "bool[2] a = {1, 0}", "y = Not(a)", "bool[2] {0, 1}"},
      {13, "float[4, B] x", "bool[2] b = {0, 1}, int64[2] c = {4, 4}",
       "s = Shape(x) e = Equal(s, c) y = And(e, b)", "bool[2] {0, ?}"},
      {13, "float[B] x", "", "y = IsNaN(x)", "bool[B]"},
  });
}

TEST(LogicShapes, Where) {
  expectShapes({
      {13, "bool[B, 1] c, float[S] x, float y", "", "z = Where(c, x, y)", "float[B, S]"},
      {13, "float[B, S] x", "bool[2] c = {1, 0}, int64 o = {9}", "s = Shape(x) y = Where(c, s, o)",
       "int64[2] {B, 9}"},
      {13, "bool[2] c, float[B, 3] x", "int64[2] o = {9, 3}", "s = Shape(x) y = Where(c, s, o)",
       "int64[2] {?, 3}"},
      {13, "bool[N] c, float[B, 3] x", "int64[2] o = {9, 3}", "s = Shape(x) y = Where(c, s, o)",
       "int64[2] {?, 3}"},
      {13, "bool[2] c, float[3] x, float y", "", "z = Where(c, x, y)",
       "error: operand 1 of type float[3] does not broadcast: 2 and 3"},
  });
}

} // namespace
} // namespace kvopt
