// com.microsoft::PagedAttention: attention of packed tokens over caches in blocks, which are listed
// in a table.
//
//   query [N,H*D], key and value [N,G*D]; or only query [N,(H+2G)*D], which holds all three
//   key_cache, value_cache [blocks,block_size,G,D]: overwritten with the new tokens' rows
//   cumulative_sequence_length int32 [B+1], past_seqlens int32 [B], block_table int32 [B,M]
//   output [N,H*D], or [N,H*v_head_size] if kv_cache_layout is LATENT: then values are columns
//   of the keys, and there is no value_cache
#include "ir/ops/contrib/contrib_domain.h"
#include "ir/ops/contrib/paged_operands.h"
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

/// H * Dv.
llvm::Expected<Dim> pagedOutputWidth(const ShapeContext& context) {
  const Node& node = context.node();
  const int64_t heads = node.intAttr("num_heads", 0);
  const int64_t groups = node.intAttr("kv_num_heads", 0);
  constexpr int64_t most = int64_t{1} << 30;
  if (heads <= 0 || groups <= 0 || heads > most || heads % groups != 0)
    return context.error(
        formatted("num_heads {} is not a positive multiple of kv_num_heads {}", heads, groups));
  const Dim width = context.type(paged::Query).dim(1);
  const bool isLatent = node.stringAttr("kv_cache_layout", "SEPARATE") == "LATENT";
  if (isLatent) {
    const int64_t columns = node.intAttr("v_head_size", 0);
    return columns > 0 && columns < most ? Dim::fixed(heads) * Dim::fixed(columns) : width;
  }
  if (context.has(paged::Key))
    return width;
  const Dim head = width.dividedBy(Dim::fixed(heads + 2 * groups)).value_or(Dim::unknown());
  return Dim::fixed(heads) * head;
}

llvm::Error inferPagedAttention(ShapeContext& context) {
  for (auto [operand, rank] : {std::pair(paged::Query, 2u),
                               {paged::Key, 2u},
                               {paged::Value, 2u},
                               {paged::KeyCache, 4u},
                               {paged::ValueCache, 4u},
                               {paged::CumulativeLengths, 1u},
                               {paged::PastLengths, 1u},
                               {paged::BlockTable, 2u}})
    if (context.has(operand))
      if (llvm::Error error = requireRank(context, operand, rank))
        return error;
  llvm::Expected<Dim> width = pagedOutputWidth(context);
  if (!width)
    return width.takeError();
  if (llvm::Error error =
          requireEqual(context, context.type(paged::CumulativeLengths).dim(0),
                       context.type(paged::PastLengths).dim(0) + Dim::fixed(1),
                       "numbers of cumulative_sequence_length and of past_seqlens and one more"))
    return error;
  context.setResult(0, TensorType(context.element(paged::Query),
                                  Shape{context.type(paged::Query).dim(0), *width}));
  context.setResult(1, context.type(paged::KeyCache));
  if (context.has(paged::ValueCache))
    context.setResult(2, context.type(paged::ValueCache));
  return llvm::Error::success();
}

} // namespace

void register_paged_attention(OpRegistry& registry) {
  OpDefBuilder paged = define(registry, OpName(contribDomain, "PagedAttention"), 1);
  for (const char* name :
       {"query", "key?", "value?", "key_cache", "value_cache?", "cumulative_sequence_length",
        "past_seqlens", "block_table", "cos_cache?", "sin_cache?", "slot_mapping?", "head_sink?",
        "q_norm_weight?", "k_norm_weight?", "k_scale?", "v_scale?", "attention_metadata?"})
    paged.in(name);
  paged.out("output").out("key_cache_out?").out("value_cache_out?");
  paged.requiredAttr("num_heads", AttributeKind::Int)
      .requiredAttr("kv_num_heads", AttributeKind::Int)
      .attr("scale", AttributeKind::Float)
      .attr("softcap", 0.0f)
      .attr("local_window_size", int64_t{-1})
      .attr("is_causal", int64_t{1})
      .attr("do_rotary", int64_t{0})
      .attr("rotary_interleaved", int64_t{0})
      .attr("rotary_offset", int64_t{0})
      .attr("qk_norm_epsilon", 1e-6f)
      .attr("k_quant_type", "NONE")
      .attr("v_quant_type", "NONE")
      .attr("k_cache_dtype", "")
      .attr("v_cache_dtype", "")
      .attr("kv_cache_layout", "SEPARATE")
      .attr("v_head_size", int64_t{0})
      .inPlace(1, paged::KeyCache)
      .inPlace(2, paged::ValueCache)
      .shape(inferPagedAttention);
}

} // namespace kvopt::ir
