// ONNX's own Attention and RotaryEmbedding.
#include "ir/op.h"

namespace kvopt::ir {
namespace {

void defineAttention(OpRegistry& registry, int64_t since) {
  OpDefBuilder builder = define(registry, "Attention", since);
  builder.in("Q").in("K").in("V").in("attn_mask?").in("past_key?").in("past_value?");
  if (since >= 24)
    builder.in("nonpad_kv_seqlen?");
  builder.out("Y").out("present_key?").out("present_value?").out("qk_matmul_output?");
  if (since >= 25)
    builder.attr("left_window_size", int64_t{-1}).attr("right_window_size", int64_t{-1});
  builder.attr("is_causal", int64_t{0})
      .attr("kv_num_heads", AttributeKind::Int)
      .attr("q_num_heads", AttributeKind::Int)
      .attr("qk_matmul_output_mode", int64_t{0})
      .attr("scale", AttributeKind::Float)
      .attr("softcap", 0.0f)
      .attr("softmax_precision", AttributeKind::Int);
}

} // namespace

void register_attention(OpRegistry& registry) {
  defineAttention(registry, 23);
  defineAttention(registry, 24);
  defineAttention(registry, 25);
  define(registry, "RotaryEmbedding", 23)
      .in("X")
      .in("cos_cache")
      .in("sin_cache")
      .in("position_ids?")
      .out("Y")
      .attr("interleaved", int64_t{0})
      .attr("num_heads", int64_t{0})
      .attr("rotary_embedding_dim", int64_t{0});
}

} // namespace kvopt::ir
