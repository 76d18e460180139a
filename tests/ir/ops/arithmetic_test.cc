// Shape rules of arithmetic, and the integers that shapes are computed with.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(ArithmeticShapes, Broadcasting) {
  expectShapes({
      {14, "float[B, 1, S] x, float[H, 1] y", "", "z = Add(x, y)", "float[B, H, S]"},
      {14, "float[B, N] x, float[B, M] y", "", "z = Mul(x, y)", "float[B, ?]"},
      {14, "float[B, 3] x, float[4] y", "", "z = Mul(x, y)",
       "error: operand 1 of type float[4] does not broadcast: 3 and 4"},
      {14, "float[] x, float[4] y", "", "z = Div(x, y)", "float"},
      {14, "float[B, 4] x, int32 e", "", "z = Pow(x, e)", "float[B, 4]"},
      {14, "float[B] x, float[1] y, float[B] z", "", "m = Max(x, y, z)", "float[B]"},
      {14, "float[2] x, float[3] y", "", "m = Min(x, y)",
       "error: operand 1 of type float[3] does not broadcast: 2 and 3"},
  });
}

TEST(ArithmeticShapes, IntegersOfShapes) {
  expectShapes({
      {14, "float[B, S] x", "int64[2] c = {2, 3}", "s = Shape(x) y = Add(s, c)",
       "int64[2] {B + 2, S + 3}"},
      {14, "float[B, S] x", "int64 c = {2}", "s = Shape(x) y = Mul(s, c)", "int64[2] {2*B, 2*S}"},
      {14, "float[\"4*B\", S] x", "int64 c = {2}", "s = Shape(x) y = Div(s, c)",
       "int64[2] {2*B, ?}"},
      {14, "float[B, S] x", "", "s = Shape(x) y = Div(s, s)", "int64[2]"},
      {14, "", "int64[2] a = {-7, 7}, int64 b = {2}", "y = Div(a, b)", "int64[2] {-3, 3}"},
      {14, "", "int64[2] a = {-7, 7}, int64 b = {0}", "y = Div(a, b)", "int64[2]"},
      {14, "", "int64[1] a = {-9223372036854775808}, int64 b = {-1}", "y = Div(a, b)", "int64[1]"},
      {14, "", "int64[1] a = {9223372036854775807}, int64 b = {1}", "y = Add(a, b)", "int64[1]"},
      {14, "", "int32[1] a = {2147483647}, int32 b = {1}", "y = Add(a, b)",
       "int32[1] {-2147483648}"},
      {14, "", "uint8[2] a = {250, 3}, uint8 b = {10}", "y = Add(a, b)", "uint8[2] {4, 13}"},
      {14, "", "uint8[1] a = {3}, uint8 b = {10}", "y = Sub(a, b)", "uint8[1] {249}"},
      {14, "float[B, S] x", "int64[2] c = {1, -1}", "s = Shape(x) y = Mul(s, c) z = Neg(y)",
       "int64[2] {-B, S}"},
      {14, "float[B, S] x", "int64[2] c = {1, -1}", "s = Shape(x) y = Mul(s, c) z = Abs(y)",
       "int64[2] {B, S}"},
      {14, "float[B, S] x", "int64 c = {0}", "s = Shape(x) y = Max(s, c)", "int64[2] {B, S}"},
      {14, "float[B, S] x", "int64 c = {1}", "s = Shape(x) y = Max(s, c)", "int64[2]"},
      {14, "float[B, \"S + 2\"] x", "int64 c = {1}", "s = Shape(x) y = Min(s, c)",
       "int64[2] {?, 1}"},
  });
}

TEST(ArithmeticShapes, Remainders) {
  expectShapes({
      {14, "", "int64[4] a = {7, -7, 7, -7}, int64[4] b = {3, 3, -3, -3}", "y = Mod(a, b)",
       "int64[4] {1, 2, -2, -1}"},
      {14, "", "int64[4] a = {7, -7, 7, -7}, int64[4] b = {3, 3, -3, -3}",
       "y = Mod <fmod = 1>(a, b)", "int64[4] {1, -1, 1, -1}"},
      {14, "float[\"4*B\", S] x", "int64 c = {4}", "s = Shape(x) y = Mod(s, c)", "int64[2] {0, ?}"},
      {14, "", "int64[1] a = {-9223372036854775808}, int64 b = {-1}", "y = Mod(a, b)",
       "int64[1] {0}"},
  });
}

TEST(ArithmeticShapes, OneOperand) {
  expectShapes({
      {6, "float[B] x", "", "y = Clip(x)", "float[B]"},
      {13, "float[B] x", "float lo = {0}", "y = Clip(x, lo)", "float[B]"},
      {13, "float[B] x", "", "y = Sqrt(x)", "float[B]"},
  });
}

} // namespace
} // namespace kvopt
