// Shape rules of the Attention and RotaryEmbedding of ONNX.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(AttentionShapes, FourAxes) {
  expectShapes({
      {23, "float[B, 8, S, 64] q, float[B, 2, T, 64] k, float[B, 2, T, 32] v", "",
       "y = Attention(q, k, v)", "float[B, 8, S, 32]"},
      {23,
       "float[B, 8, S, 64] q, float[B, 2, S, 64] k, float[B, 2, S, 32] v, float[B, 2, P, 64] pk, "
       "float[B, 2, P, 32] pv",
       "", "y, nk, nv, w = Attention(q, k, v, , pk, pv)",
       "float[B, 8, S, 32]; float[B, 2, P + S, 64]; float[B, 2, P + S, 32]; float[B, 8, S, P + S]"},
      {23,
       "float[B, 8, S, 64] q, float[B, 2, S, 64] k, float[B, 2, S, 32] v, float[] pk, float[] pv",
       "", "y, nk = Attention(q, k, v, , pk, pv)", "float[B, 8, S, 32]; float[B, 2, ?, 64]"},
      {23, "float[B, 8, S, 64] q, float[B, 2, T, 32] k, float[B, 2, T, 32] v", "",
       "y = Attention(q, k, v)", "error: widths of query and key differ: 64 and 32"},
      {23, "float[B, 8, S, 64] q, float[B, 2, T, 64] k, float[B, 2, \"T + 1\", 64] v", "",
       "y = Attention(q, k, v)", "error: lengths of key and value differ: T and T + 1"},
      {23, "float[B, S] q, float[B, 2, T, 64] k, float[B, 2, T, 64] v", "",
       "y = Attention(q, k, v)", "error: operand 0 is float[B, S], not of rank 3 or 4"},
      {22, "float[B, 8, S, 64] q, float[B, 2, T, 64] k, float[B, 2, T, 32] v", "",
       "y = Attention(q, k, v)", "undefined"},
  });
}

TEST(AttentionShapes, ThreeAxes) {
  expectShapes({
      {24, "float[B, S, 512] q, float[B, T, 128] k, float[B, T, 64] v", "",
       "y, nk = Attention <q_num_heads = 8, kv_num_heads = 2>(q, k, v)",
       "float[B, S, 256]; float[B, 2, T, 64]"},
      {24, "float[B, S, W] q, float[B, T, 128] k, float[B, T, 64] v", "",
       "y, nk = Attention <q_num_heads = 8, kv_num_heads = 2>(q, k, v)",
       "float[B, S, 256]; float[B, 2, T, 64]"},
      {24, "float[B, S, 512] q, float[B, T, 128] k, float[B, T, 64] v", "",
       "y, nk = Attention(q, k, v)", "float[B, S, ?]; undefined"},
      {24, "float[] q, float[B, T, 128] k, float[B, T, 64] v", "", "y = Attention(q, k, v)",
       "float"},
  });
}

TEST(AttentionShapes, Rotary) {
  expectShapes({
      {23, "float16[B, H, S, D] x, float16[M, R] c, float16[M, R] s, int64[B, S] p", "",
       "y = RotaryEmbedding(x, c, s, p)", "float16[B, H, S, D]"},
  });
}

} // namespace
} // namespace kvopt
