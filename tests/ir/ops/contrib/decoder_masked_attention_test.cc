// The shape rule of com.microsoft::DecoderMaskedMultiHeadAttention.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

constexpr const char* maskedInputs =
    "float[B, 1, 64] q, float[B, 1, 64] k, float[B, 1, 32] v, float[B, 4, P, 16] pk, "
    "float[B, 4, P, 8] pv, int32[1] n";

TEST(DecoderMaskedShapes, SelfAttention) {
  expectShapes({
      {17, maskedInputs, "",
       "y, nk, nv = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 4>(q, k, v, , , pk, "
       "pv)",
       "float[B, 1, 32]; float[B, 4, P + 1, 16]; float[B, 4, P + 1, 8]"},
      {17, maskedInputs, "",
       "y, nk, nv = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 4, "
       "past_present_share_buffer = 1>(q, k, v, , , pk, pv, n)",
       "float[B, 1, 32]; float[B, 4, P, 16]; float[B, 4, P, 8]"},
      {17, maskedInputs, "",
       "y, nk, nv = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 4>(q, k, v)",
       "float[B, 1, 32]; float[B, 4, 1, 16]; float[B, 4, 1, 8]"},
      {17, "float[B, 1, 192] q, float[B, 4, P, 16] pk, float[B, 4, P, 16] pv", "",
       "y, nk, nv = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 4>(q, , , , , pk, "
       "pv)",
       "float[B, 1, 64]; float[B, 4, P + 1, 16]; float[B, 4, P + 1, 16]"},
      {17, "float[B, 1] q", "",
       "y = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 4>(q)",
       "error: operand 0 is float[B, 1], its rank should be 3"},
  });
}

TEST(DecoderMaskedShapes, CrossAttention) {
  expectShapes({
      {17, "float[B, 1, 64] q, float[B, 4, L, 16] k, float[B, 4, L, 8] v", "",
       "y = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 4>(q, k, v)",
       "float[B, 1, 32]"},
  });
}

} // namespace
} // namespace kvopt
