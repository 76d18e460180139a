// Shape rules of LinearAttention and CausalConvWithState.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(RecurrentShapes, LinearAttention) {
  expectShapes({
      {27, "float16[B, T, 64] q, float16[B, T, 32] k, float16[B, T, 16] v, float[B, 4, 8, 4] s", "",
       "y, n = LinearAttention<q_num_heads = 8, kv_num_heads = 4, update_rule = \"linear\">(q, k, "
       "v, s)",
       "float16[B, T, 32]; float[B, 4, 8, 4]"},
      {27, "float16[B, T, 64] q, float16[B, T, 32] k, float16[B, T, 16] v", "",
       "y, n = LinearAttention<q_num_heads = 8, kv_num_heads = 4, update_rule = \"linear\">(q, k, "
       "v)",
       "float16[B, T, 32]; float16[B, 4, 8, 4]"},
      {27, "float[B, T, 64] q, float[B, T, 32] k, float[B, T, W] v, float[B, T, 4] b", "",
       "y, n = com.microsoft.LinearAttention<q_num_heads = 8, kv_num_heads = 4, update_rule = "
       "\"delta\">(q, k, v, , , b)",
       "float[B, T, ?]; float[B, 4, 8, ?]"},
      {27, "float[B, T, 60] q, float[B, T, 32] k, float[B, T, 16] v", "",
       "y, n = LinearAttention<q_num_heads = 8, kv_num_heads = 4>(q, k, v)",
       "error: the last extent 60 of operand 0 does not divide into 8 heads"},
      {27, "float[B, T, 64] q, float[B, T, 64] k, float[B, T, 16] v", "",
       "y, n = LinearAttention<q_num_heads = 8, kv_num_heads = 4>(q, k, v)",
       "error: widths of query and key differ: 8 and 16"},
      {27, "float[B, T, 64] q, float[B, T, 64] k, float[B, T, 16] v", "",
       "y, n = LinearAttention<q_num_heads = 4, kv_num_heads = 8>(q, k, v)",
       "error: q_num_heads = 4 is not a positive multiple of kv_num_heads = 8"},
      {27, "float[B, T, 64] q, float[B, T, 32] k, float[B, T, 16] v, float[B, 4, 8, 5] s", "",
       "y, n = LinearAttention<q_num_heads = 8, kv_num_heads = 4>(q, k, v, s)",
       "error: extents of the past state differ: 5 and 4"},
  });
}

TEST(RecurrentShapes, CausalConvWithState) {
  expectShapes({
      {27, "float16[B, C, L] x, float16[C, 1, 4] w, float16[C] b, float16[B, C, 3] s", "",
       "y, n = CausalConvWithState(x, w, b, s)", "float16[B, C, L]; float16[B, C, 3]"},
      {27, "float[B, C, L] x, float[6, 1, K] w", "",
       "y, n = com.microsoft.CausalConvWithState(x, w)", "float[B, 6, L]; float[B, 6, K - 1]"},
      {27, "float[B, 5, L] x, float[6, 1, 4] w", "", "y, n = CausalConvWithState(x, w)",
       "error: channels of input and weight differ: 5 and 6"},
      {27, "float[B, 6, L] x, float[6, 2, 4] w", "", "y, n = CausalConvWithState(x, w)",
       "error: the weight's second extent and 1 differ: 2 and 1"},
      {27, "float[B, 6, L] x, float[6, 1, 0] w", "", "y, n = CausalConvWithState(x, w)",
       "error: the kernel is empty"},
      {27, "float[B, 6, L] x, float[6, 1, 4] w, float[B, 6, 4] s", "",
       "y, n = CausalConvWithState(x, w, , s)", "error: extents of the past state differ: 4 and 3"},
  });
}

} // namespace
} // namespace kvopt
