// ONNX's own Attention and RotaryEmbedding.
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

// Extents of an operand with four axes, which may also be given as [B, tokens, heads * width].
struct Heads {
  Dim batch, count, tokens, width;
};

Heads headsOf(const TensorType& type, int64_t count) {
  if (!type.hasRank())
    return {};
  if (type.rank() == 4)
    return {type.dim(0), type.dim(1), type.dim(2), type.dim(3)};
  if (type.rank() != 3)
    return {};
  Heads heads{type.dim(0), Dim::unknown(), type.dim(1), Dim::unknown()};
  if (count > 0) {
    heads.count = Dim::fixed(count);
    heads.width = type.dim(2).dividedBy(heads.count).value_or(Dim::unknown());
  }
  return heads;
}

llvm::Error inferAttention(ShapeContext& context) {
  const Node& node = context.node();
  const TensorType& query = context.type(0);
  for (unsigned operand : {0u, 1u, 2u})
    if (const TensorType& type = context.type(operand);
        type.hasRank() && type.rank() != 3 && type.rank() != 4)
      return context.error(formatted("operand {} is {}, not of rank 3 or 4", operand, type.str()));
  int64_t groups = node.intAttr("kv_num_heads", 0);
  Heads q = headsOf(query, node.intAttr("q_num_heads", 0));
  Heads k = headsOf(context.type(1), groups);
  Heads v = headsOf(context.type(2), groups);
  if (llvm::Error error = requireEqual(context, q.width, k.width, "widths of query and key"))
    return error;
  if (llvm::Error error = requireEqual(context, k.tokens, v.tokens, "lengths of key and value"))
    return error;
  TensorType output(context.element(0));
  if (query.hasRank())
    output.setShape(query.rank() == 4 ? Shape{q.batch, q.count, q.tokens, v.width}
                                      : Shape{q.batch, q.tokens, q.count * v.width});
  context.setResult(0, std::move(output));
  Dim keys = context.has(4) ? context.type(4).dim(2) + k.tokens : k.tokens;
  Dim values = context.has(5) ? context.type(5).dim(2) + v.tokens : v.tokens;
  context.setResult(1, TensorType(context.element(1), Shape{k.batch, k.count, keys, k.width}));
  context.setResult(2, TensorType(context.element(2), Shape{v.batch, v.count, values, v.width}));
  context.setResult(3, TensorType(context.element(0), Shape{q.batch, q.count, q.tokens, keys}));
  return llvm::Error::success();
}

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
      .attr("softmax_precision", AttributeKind::Int)
      .shape(inferAttention);
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
      .attr("rotary_embedding_dim", int64_t{0})
      .shape(inferSameAsFirst);
}

} // namespace kvopt::ir
