// com.microsoft::DecoderMaskedMultiHeadAttention: attention of one new token per batch row.
//
//   query [B,1,H*D]       with key [B,1,H*D] and value [B,1,H*Dv]: self attention
//                         with key [B,H,L,D] and value [B,H,L,Dv]: cross attention, without a past
//   query [B,1,3*H*D]     without key and value: all three concatenated
//   past_key [B,H,P,D], past_value [B,H,P,Dv]: presents of P + 1 rows; or, with
//                         past_present_share_buffer = 1, buffers that receive the new row
//
// The operator is similar to MultiHeadAttention with its operands in another order.
#include "ir/ops/contrib/contrib_domain.h"
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

enum DecoderMaskedOperand : unsigned { MaskedQuery, MaskedKey, MaskedValue, MaskedPastKey = 5 };

bool isOfRank(const TensorType& type, unsigned rank) {
  return type.hasRank() && type.rank() == rank;
}

/// H * Dv.
Dim decoderMaskedWidth(const ShapeContext& context) {
  const TensorType& value = context.type(MaskedValue);
  if (!context.has(MaskedKey) && !context.has(MaskedValue))
    return context.type(MaskedQuery).dim(2).dividedBy(Dim::fixed(3)).value_or(Dim::unknown());
  if (isOfRank(value, 3))
    return value.dim(2);
  return isOfRank(value, 4) ? value.dim(1) * value.dim(3) : Dim::unknown();
}

llvm::Error inferDecoderMaskedMultiHeadAttention(ShapeContext& context) {
  const Node& node = context.node();
  if (llvm::Error error = requireRank(context, MaskedQuery, 3))
    return error;
  const TensorType& query = context.type(MaskedQuery);
  const Dim width = decoderMaskedWidth(context);
  context.setResult(
      0, TensorType(context.element(MaskedQuery), Shape{query.dim(0), query.dim(1), width}));
  const bool sharesBuffer = node.intAttr("past_present_share_buffer", 0) != 0;
  const int64_t heads = node.intAttr("num_heads", 0);
  for (unsigned result : {1u, 2u}) {
    const unsigned past = MaskedPastKey + result - 1;
    if (context.has(past) && sharesBuffer) {
      context.setResult(result, context.type(past));
      continue;
    }
    // The presents of cross attention are not documented.
    if (isOfRank(context.type(MaskedKey), 4) || heads <= 0)
      continue;
    const Dim columns =
        result == 1 && context.has(MaskedKey) ? context.type(MaskedKey).dim(2) : width;
    Dim rows = query.dim(1);
    if (context.has(past))
      rows = context.type(past).dim(2) + rows;
    context.setResult(
        result, TensorType(context.element(MaskedQuery),
                           Shape{query.dim(0), Dim::fixed(heads), rows,
                                 columns.dividedBy(Dim::fixed(heads)).value_or(Dim::unknown())}));
  }
  return llvm::Error::success();
}

} // namespace

void register_decoder_masked_attention(OpRegistry& registry) {
  OpDefBuilder masked =
      define(registry, OpName(contribDomain, "DecoderMaskedMultiHeadAttention"), 1);
  for (const char* name :
       {"query", "key?", "value?", "mask_index?", "attention_bias?", "past_key?", "past_value?",
        "past_sequence_length?", "beam_width?", "cache_indirection?", "bias?"})
    masked.in(name);
  masked.out("output").out("present_key?").out("present_value?").out("qk?");
  masked.requiredAttr("num_heads", AttributeKind::Int)
      .attr("mask_filter_value", -10000.0f)
      .attr("scale", AttributeKind::Float)
      .attr("past_present_share_buffer", int64_t{0})
      .attr("output_qk", int64_t{0})
      .reuse(1, MaskedPastKey)
      .reuse(2, MaskedPastKey + 1)
      .shape(inferDecoderMaskedMultiHeadAttention);
}

} // namespace kvopt::ir
