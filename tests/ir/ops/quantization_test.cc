// Shape rules of quantization.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(QuantizationShapes, TypesOfScalesAndZeroPoints) {
  expectShapes({
      {21, "int8[B, 4] x, float16[] s, int8[] z", "", "y = DequantizeLinear(x, s, z)",
       "float16[B, 4]"},
      {13, "float[B, 4] x, float[] s, int8[] z", "", "y = QuantizeLinear(x, s, z)", "int8[B, 4]"},
      {10, "float[B, 4] x, float[] s", "", "y = QuantizeLinear(x, s)", "uint8[B, 4]"},
      {11, "float[B, 4] x", "", "y, s, z = DynamicQuantizeLinear(x)",
       "uint8[B, 4]; float[]; uint8[]"},
      {10, "uint8[B, S, 4] a, int8[4, 6] b", "", "y = MatMulInteger(a, b)", "int32[B, S, 6]"},
      {10, "uint8[B, S, 4] a, int8[5, 6] b", "", "y = MatMulInteger(a, b)",
       "error: inner extents differ: 4 and 5"},
  });
}

} // namespace
} // namespace kvopt
