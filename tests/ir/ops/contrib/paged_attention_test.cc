// The shape rule of com.microsoft::PagedAttention.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

constexpr const char* pagedInputs =
    "float16[N, 64] q, float16[N, 32] k, float16[N, 32] v, float16[N, 128] packed, "
    "float16[M, 16, 2, 16] kc, float16[M, 16, 2, 16] vc, float16[M, 16, 1, 16] latent, "
    "int32[\"B + 1\"] c, int32[B] p, int32[B, W] t";

TEST(PagedShapes, PagedAttention) {
  expectShapes({
      {17, pagedInputs, "",
       "y, nk, nv = com.microsoft.PagedAttention <num_heads = 4, kv_num_heads = 2>(q, k, v, kc, "
       "vc, c, p, t)",
       "float16[N, 64]; float16[M, 16, 2, 16]; float16[M, 16, 2, 16]"},
      {17, pagedInputs, "",
       "y, nk, nv = com.microsoft.PagedAttention <num_heads = 4, kv_num_heads = 2>(packed, , , kc, "
       "vc, c, p, t)",
       "float16[N, 64]; float16[M, 16, 2, 16]; float16[M, 16, 2, 16]"},
      {17, pagedInputs, "",
       "y, nk = com.microsoft.PagedAttention <num_heads = 4, kv_num_heads = 1, kv_cache_layout = "
       "\"LATENT\", v_head_size = 8>(q, k, , latent, , c, p, t)",
       "float16[N, 32]; float16[M, 16, 1, 16]"},
      {17, pagedInputs, "",
       "y = com.microsoft.PagedAttention <num_heads = 4, kv_num_heads = 3>(q, k, v, kc, vc, c, p, "
       "t)",
       "error: num_heads 4 is not a positive multiple of kv_num_heads 3"},
      {17, pagedInputs, "",
       "y = com.microsoft.PagedAttention <num_heads = 4, kv_num_heads = 2>(kc, k, v, kc, vc, c, p, "
       "t)",
       "error: operand 0 is float16[M, 16, 2, 16], its rank should be 2"},
      {17, "float16[N, 64] q, float16[M, 16, 4, 16] kc, int32[3] c, int32[3] p, int32[3, W] t", "",
       "y = com.microsoft.PagedAttention <num_heads = 4, kv_num_heads = 4>(q, q, q, kc, kc, c, p, "
       "t)",
       "error: numbers of cumulative_sequence_length and of past_seqlens and one more differ: 3 "
       "and 4"},
  });
}

} // namespace
} // namespace kvopt
