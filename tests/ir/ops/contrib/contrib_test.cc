// Shape rules of ONNX Runtime's operators.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(ContribShapes, GroupQueryAttention) {
  expectShapes({
      {17,
       "float[B, S, 512] q, float[B, S, 128] k, float[B, S, 128] v, float[B, 2, C, 64] pk, "
       "float[B, 2, C, 64] pv, int32[B] l, int32 t",
       "",
       "y, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 2>(q, k, v, "
       "pk, pv, l, t)",
       "float[B, S, 512]; float[B, 2, ?, 64]; float[B, 2, ?, 64]"},
      {17, "float[B, S, 768] q, float[B, 2, 16, 64] pk, float[B, 2, 16, 64] pv, int32[B] l",
       "int32 t = {9}",
       "y, nk = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 2>(q, , , pk, pv, "
       "l, t)",
       "float[B, S, 512]; float[B, 2, 16, 64]"},
      {17, "float[B, S, 768] q, float[B, 2, 16, 64] pk, float[B, 2, 16, 64] pv, int32[B] l",
       "int32 t = {20}",
       "y, nk = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 2>(q, , , pk, pv, "
       "l, t)",
       "float[B, S, 512]; float[B, 2, 20, 64]"},
      {17, "float[B, S, 768] q, int32[B] l", "int32 t = {-3}",
       "y, nk = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 2>(q, , , , , l, "
       "t)",
       "float[B, S, 512]; float[B, 2, ?, 64]"},
      {17,
       "float[B, S, 512] q, float[B, S, 128] k, float[B, S, 128] v, int8[B, 2, C, 64] pk, "
       "int8[B, 2, C, 64] pv, int32[B] l, int32 t, float ks, float vs",
       "",
       "y, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 2, "
       "k_quant_type = \"PER_TENSOR\", v_quant_type = \"PER_TENSOR\", kv_cache_bit_width = 8>(q, "
       "k, "
       "v, pk, pv, l, t, , , , , , ks, vs)",
       "float[B, S, 512]; int8[B, 2, ?, 64]; int8[B, 2, ?, 64]"},
      {17, "float16[B, S, 760] q, int32[B] l, float[2, 63] s", "int32 t = {7}",
       "y, nk = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 1, "
       "k_quant_type = \"PER_CHANNEL\", v_quant_type = \"PER_CHANNEL\", kv_cache_bit_width = 4>(q, "
       ", "
       ", , , l, t, , , , , , s, s)",
       "float16[B, S, 608]; uint8[B, 1, 7, 38]"},
      {17, "float[B, S, 768] q, int32[B] l, float s", "int32 t = {7}",
       "y, nk = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 2, "
       "k_quant_type = \"PER_TENSOR\", v_quant_type = \"PER_TENSOR\", kv_cache_bit_width = 4>(q, , "
       ", , , l, t, , , , , , s, s)",
       "float[B, S, 512]; uint8[B, 2, 7, 32]"},
      {17, "float[B, S] q, int32[B] l, int32 t", "",
       "y = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 2>(q, , , , , l, t)",
       "error: operand 0 is float[B, S], its rank should be 3"},
  });
}

TEST(ContribShapes, OtherAttentions) {
  expectShapes({
      {17, "float[B, S, 512] q, float[B, T, 512] k, float[B, T, 256] v", "",
       "y = com.microsoft.MultiHeadAttention <num_heads = 8>(q, k, v)", "float[B, S, 256]"},
      {17, "float[B, S, 512] q, float[B, 8, T, 64] k, float[B, 8, T, 32] v", "",
       "y = com.microsoft.MultiHeadAttention <num_heads = 8>(q, k, v)", "float[B, S, 256]"},
      {17, "float[B, S, 512] q", "", "y = com.microsoft.MultiHeadAttention <num_heads = 8>(q)",
       "float[B, S, ?]"},
      {17, "float[B, S, 512] x, float[512, 1536] w", "",
       "y = com.microsoft.Attention <num_heads = 8>(x, w)", "float[B, S, 512]"},
      {17, "float[B, S, 512] x, float[512, 1280] w", "",
       "y = com.microsoft.Attention <num_heads = 8, qkv_hidden_sizes = [512, 512, 256]>(x, w)",
       "float[B, S, 256]"},
  });
}

TEST(ContribShapes, MatricesAndNormalizations) {
  expectShapes({
      {17, "float[B, M, K] a, float[B, N, K] b", "",
       "y = com.microsoft.FusedMatMul <transB = 1>(a, b)", "float[B, M, N]"},
      {17, "float[B, M, 3] a, float[B, 4, N] b", "", "y = com.microsoft.FusedMatMul(a, b)",
       "error: inner extents differ: 3 and 4"},
      {17, "float[B, M, K] a, float[B, K, N] b", "",
       "y = com.microsoft.FusedMatMul <transBatchA = 1>(a, b)", "float[?, B, N]"},
      {17, "float[B, S, 64] a, uint8[128, 2, 16] b, float[256] s", "",
       "y = com.microsoft.MatMulNBits <K = 64, N = 128, block_size = 32>(a, b, s)",
       "float[B, S, 128]"},
      {17, "float[B, S, 32] a, uint8[128, 2, 16] b, float[256] s", "",
       "y = com.microsoft.MatMulNBits <K = 64, N = 128, block_size = 32>(a, b, s)",
       "error: inner extents differ: 32 and 64"},
      {17, "float[B, S, 64] a, uint8[1] b, float[1] s", "",
       "y = com.microsoft.MatMulNBits <K = 64, N = 0, block_size = 32>(a, b, s)",
       "error: K and N should be positive"},
      {17, "float[B, S, 64] x, float[B, S, 64] s, float[64] g", "",
       "y, m, i, t = com.microsoft.SkipSimplifiedLayerNormalization(x, s, g)",
       "float[B, S, 64]; undefined; float[B, S, 1]; float[B, S, 64]"},
      {17, "float[B, S, 64] x, float[64] b", "", "y = com.microsoft.BiasGelu(x, b)",
       "float[B, S, 64]"},
  });
}

} // namespace
} // namespace kvopt
