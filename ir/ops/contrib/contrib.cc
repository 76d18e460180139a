// Operators of ONNX Runtime's domain com.microsoft that occur in fused decoders.
#include "ir/elementwise_definition.h"
#include "ir/ops/contrib/contrib_domain.h"
#include "ir/shapes/shape_rules.h"

#include <algorithm>

namespace kvopt::ir {
namespace {

Dim attrExtent(const ShapeContext& context, llvm::StringRef name) {
  int64_t value = context.node().intAttr(name, 0);
  return value > 0 ? Dim::fixed(value) : Dim::unknown();
}

// Length of the present: the maximum of the buffer's length and the total length.
Dim presentLength(ShapeContext& context, unsigned past, unsigned total) {
  std::optional<Dim> wanted = scalarInteger(context, total);
  if (!wanted)
    return Dim::unknown();
  if (!context.has(past))
    return wanted->isKnownNonNegative() ? *wanted : Dim::unknown();
  Dim capacity = context.type(past).dim(2);
  if (wanted->isKnownLessEqual(capacity))
    return capacity;
  return capacity.isKnownLessEqual(*wanted) ? *wanted : Dim::unknown();
}

// Contents of the rows of GroupQueryAttention's caches, whose heads have `width` columns.
struct HeldRows {
  ElementType element;
  Dim width;
};

// In quantized caches, 8-bit codes are int8, and two 4-bit codes are one byte of uint8.
HeldRows heldRows(const ShapeContext& context, const Dim& width) {
  const Node& node = context.node();
  const bool isQuantized = !node.stringAttr("k_quant_type", "NONE").equals_insensitive("NONE");
  const int64_t bits = node.intAttr("kv_cache_bit_width", 0);
  if (!isQuantized)
    return {context.element(0), width};
  if (bits == 8)
    return {ElementType::Int8, width};
  if (bits == 4 && width.value())
    return {ElementType::UInt8, Dim::fixed((*width.value() + 1) / 2)};
  return {bits == 4 ? ElementType::UInt8 : ElementType::Undefined, Dim::unknown()};
}

// Without a key, the query operand holds query, key and value of each token. A key without rows
// means that the past already contains the new tokens, which another layer wrote.
llvm::Error inferGroupQueryAttention(ShapeContext& context) {
  const TensorType& query = context.type(0);
  if (llvm::Error error = requireRank(context, 0, 3))
    return error;
  Dim heads = attrExtent(context, "num_heads");
  Dim groups = attrExtent(context, "kv_num_heads");
  bool packed = !context.has(1);
  Dim rows = packed ? heads + groups * Dim::fixed(2) : heads;
  Dim width = query.dim(2).dividedBy(rows).value_or(Dim::unknown());
  context.setResult(
      0, TensorType(context.element(0),
                    Shape{query.dim(0), query.dim(1), packed ? heads * width : query.dim(2)}));
  const HeldRows held = heldRows(context, width);
  const bool isShared = !packed && context.has(3) && context.type(1).dim(1).value() == 0;
  Dim length = isShared ? context.type(3).dim(2) : presentLength(context, 3, 6);
  for (unsigned i : {1u, 2u}) {
    ElementType element = context.has(i + 2) ? context.element(i + 2) : held.element;
    if (i >= context.resultCount())
      break;
    // If the length is unknown, the declaration determines whether past and present share a buffer.
    Dim tokens = length.isUnknown() ? context.node().result(i).type().dim(2) : length;
    context.setResult(i, TensorType(element, Shape{query.dim(0), groups, tokens, held.width}));
  }
  return llvm::Error::success();
}

// A present with separate heads: the rows of `added` ([B,T,H*W] or [B,H,T,W]) after those of the
// past.
TensorType presentByHeads(const ShapeContext& context, unsigned added, unsigned past) {
  const TensorType& type = context.type(added);
  Dim heads = attrExtent(context, "num_heads");
  TensorType present(context.element(0));
  if (!type.hasRank() || (type.rank() != 3 && type.rank() != 4))
    return present;
  bool split = type.rank() == 4;
  Dim rows = split ? type.dim(2) : type.dim(1);
  Dim width = split ? type.dim(3) : type.dim(2).dividedBy(heads).value_or(Dim::unknown());
  if (context.has(past))
    rows = context.type(past).dim(2) + rows;
  present.setShape({context.type(0).dim(0), heads, rows, width});
  return present;
}

// The output is [B, S, value width].
llvm::Error inferMultiHeadAttention(ShapeContext& context) {
  const TensorType& query = context.type(0);
  const TensorType& value = context.type(2);
  TensorType output(context.element(0));
  if (query.hasRank() && query.rank() == 3) {
    Dim width = Dim::unknown();
    if (value.hasRank() && value.rank() == 3)
      width = value.dim(2);
    else if (value.hasRank() && value.rank() == 4)
      width = value.dim(1) * value.dim(3);
    output.setShape({query.dim(0), query.dim(1), width});
  }
  context.setResult(0, std::move(output));
  // With past_sequence_length, the present is the buffer of the past.
  if (context.has(8))
    return llvm::Error::success();
  context.setResult(1, presentByHeads(context, 1, 6));
  context.setResult(2, presentByHeads(context, 2, 7));
  return llvm::Error::success();
}

llvm::Error inferFusedAttention(ShapeContext& context) {
  const TensorType& input = context.type(0);
  ElementType element =
      context.element(0) == ElementType::Undefined ? context.element(1) : context.element(0);
  Dim width = Dim::unknown();
  if (auto sizes = context.node().intsAttr("qkv_hidden_sizes")) {
    if (sizes->size() == 3 && (*sizes)[2] > 0)
      width = Dim::fixed((*sizes)[2]);
  } else {
    width = context.type(1).dim(1).dividedBy(Dim::fixed(3)).value_or(Dim::unknown());
  }
  context.setResult(0, TensorType(element, Shape{input.dim(0), input.dim(1), width}));
  if (context.has(6))
    return llvm::Error::success();
  Dim heads = attrExtent(context, "num_heads");
  Dim rows = context.has(4) ? context.type(4).dim(3) + input.dim(1) : input.dim(1);
  context.setResult(1, TensorType(element, Shape{Dim::fixed(2), input.dim(0), heads, rows,
                                                 width.dividedBy(heads).value_or(Dim::unknown())}));
  return llvm::Error::success();
}

void defineNormalizations(OpRegistry& registry) {
  define(registry, OpName(contribDomain, "SkipSimplifiedLayerNormalization"), 1)
      .in("input")
      .in("skip")
      .in("gamma")
      .in("bias?")
      .out("output")
      .out("mean?")
      .out("inv_std_var?")
      .out("input_skip_bias_sum?")
      .attr("epsilon", 1e-12f);
  define(registry, OpName(contribDomain, "SkipLayerNormalization"), 1)
      .in("input")
      .in("skip")
      .in("gamma")
      .in("beta?")
      .in("bias?")
      .out("output")
      .out("mean?")
      .out("inv_std_var?")
      .out("input_skip_bias_sum?")
      .attr("epsilon", 1e-12f);
}

void defineAttentions(OpRegistry& registry) {
  OpDefBuilder grouped = define(registry, OpName(contribDomain, "GroupQueryAttention"), 1);
  for (const char* name :
       {"query", "key?", "value?", "past_key?", "past_value?", "seqlens_k", "total_sequence_length",
        "cos_cache?", "sin_cache?", "position_ids?", "attention_bias?", "head_sink?", "k_scale?",
        "v_scale?", "q_norm_weight?", "k_norm_weight?"})
    grouped.in(name);
  grouped.out("output").out("present_key?").out("present_value?").out("output_qk?");
  grouped.requiredAttr("num_heads", AttributeKind::Int)
      .requiredAttr("kv_num_heads", AttributeKind::Int)
      .attr("scale", AttributeKind::Float)
      .attr("softcap", 0.0f)
      .attr("local_window_size", int64_t{-1})
      .attr("do_rotary", int64_t{0})
      .attr("rotary_interleaved", int64_t{0})
      .attr("smooth_softmax", int64_t{0})
      .attr("causal", int64_t{1})
      .attr("qk_norm_epsilon", 1e-6f)
      .attr("qk_output", int64_t{0})
      .attr("k_quant_type", "NONE")
      .attr("v_quant_type", "NONE")
      .attr("kv_cache_bit_width", int64_t{0})
      .attr("sliding_window_cache", int64_t{0})
      .reuse(1, 3)
      .reuse(2, 4)
      .shape(inferGroupQueryAttention);

  OpDefBuilder multi = define(registry, OpName(contribDomain, "MultiHeadAttention"), 1);
  for (const char* name :
       {"query", "key?", "value?", "bias?", "key_padding_mask?", "attention_bias?", "past_key?",
        "past_value?", "past_sequence_length?", "cache_indirection?"})
    multi.in(name);
  multi.out("output").out("present_key?").out("present_value?").out("qk?");
  multi.requiredAttr("num_heads", AttributeKind::Int)
      .attr("mask_filter_value", -10000.0f)
      .attr("scale", AttributeKind::Float)
      .attr("unidirectional", int64_t{0})
      .shape(inferMultiHeadAttention);

  define(registry, OpName(contribDomain, "Attention"), 1)
      .in("input")
      .in("weights")
      .in("bias?")
      .in("mask_index?")
      .in("past?")
      .in("attention_bias?")
      .in("past_sequence_length?")
      .out("output")
      .out("present?")
      .requiredAttr("num_heads", AttributeKind::Int)
      .attr("unidirectional", int64_t{0})
      .attr("qkv_hidden_sizes", AttributeKind::Ints)
      .attr("mask_filter_value", -10000.0f)
      .attr("scale", AttributeKind::Float)
      .attr("do_rotary", int64_t{0})
      .attr("rotary_embedding_dim", int64_t{0})
      .attr("past_present_share_buffer", int64_t{0})
      .shape(inferFusedAttention);
}

} // namespace

void register_contrib(OpRegistry& registry) {
  defineNormalizations(registry);
  defineAttentions(registry);
  define(registry, OpName(contribDomain, "RotaryEmbedding"), 1)
      .in("input")
      .in("position_ids")
      .in("cos_cache")
      .in("sin_cache")
      .out("output")
      .attr("interleaved", int64_t{0})
      .attr("num_heads", int64_t{0})
      .attr("rotary_embedding_dim", int64_t{0})
      .attr("is_packed_batching", int64_t{0})
      .attr("scale", 1.0f);
  OpDefBuilder quantized = define(registry, OpName(contribDomain, "MatMulNBits"), 1);
  quantized.in("A").in("B").in("scales").in("zero_points?").in("g_idx?").in("bias?").out("Y");
  quantized.requiredAttr("K", AttributeKind::Int)
      .requiredAttr("N", AttributeKind::Int)
      .attr("bits", int64_t{4})
      .requiredAttr("block_size", AttributeKind::Int)
      .attr("accuracy_level", int64_t{0})
      .attr("weight_prepacked", int64_t{0});
  const auto gelu = [&](const char* name, std::initializer_list<const char*> operands,
                        const char* result) {
    defineElementwise(registry, OpName(contribDomain, name), 1, operands, result,
                      ElementFunction::Nonlinear);
  };
  gelu("Gelu", {"X"}, "Y");
  gelu("FastGelu", {"X", "bias?"}, "Y");
  gelu("BiasGelu", {"A", "B"}, "C");
  define(registry, OpName(contribDomain, "BiasSoftmax"), 1)
      .in("data")
      .in("bias")
      .out("output")
      .attr("axis", int64_t{1})
      .requiredAttr("is_inner_broadcast", AttributeKind::Int);
  define(registry, OpName(contribDomain, "FusedMatMul"), 1)
      .in("A")
      .in("B")
      .out("Y")
      .attr("alpha", 1.0f)
      .attr("transA", int64_t{0})
      .attr("transB", int64_t{0})
      .attr("transBatchA", int64_t{0})
      .attr("transBatchB", int64_t{0});
}

} // namespace kvopt::ir
