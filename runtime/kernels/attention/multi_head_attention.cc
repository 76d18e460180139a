// com.microsoft::MultiHeadAttention:
//
//   output [B,S,H*Dv] = softmax(scale * Q K^T + masks) V       (formula: AttentionView)
//
//   query [B,S,H*D], key [B,L,H*D], value [B,L,H*Dv]; or only query [B,S,H,3,D]; or query and key
//   [B,L,H,2,D]; or query with key [B,H,L,D] and value [B,H,L,Dv], the heads of cross attention
//   bias [H*(2D+Dv)] is added to query, key and value first; only to the query if key and value are
//   heads of cross attention
//   past_key, past_value [B,H,P,D]: their rows come before the new ones; the presents hold both
//   key_padding_mask, attention_bias, unidirectional: see PaddingMaskRequest
#include "ir/ops/contrib/multi_head_operands.h"
#include "runtime/attention/attention_heads.h"
#include "runtime/attention/masked_attention.h"
#include "runtime/attention/projection_bias.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

struct Heads {
  TensorView query, key, value;
};

/// Part `part` of [B,S,H,parts,D] as [B,H,S,D].
TensorView unpacked(const TensorView& packed, int64_t part) {
  TensorView view = slicedAxis(packed, 3, part, 1);
  view.shape = {packed.shape[0], packed.shape[2], packed.shape[1], packed.shape[4]};
  view.strides = {packed.strides[0], packed.strides[2], packed.strides[1], packed.strides[4]};
  return view;
}

bool isPacked(const TensorView& tensor, int64_t heads, int64_t parts) {
  return tensor.rank() == 5 && tensor.shape[2] == heads && tensor.shape[3] == parts;
}

llvm::Expected<Heads> headsOfOperands(KernelContext& context, int64_t heads) {
  const TensorView& query = context.in(mha::Query);
  if (!context.has(mha::Key) && !context.has(mha::Value)) {
    if (!isPacked(query, heads, 3))
      return context.error("a query without key must be [B,S,H,3,D]");
    return Heads{unpacked(query, 0), unpacked(query, 1), unpacked(query, 2)};
  }
  if (query.rank() != 3)
    return context.error("the query must be [B,S,H*D]");
  auto split = headsOf(context, query, heads, "the query");
  if (!split)
    return split.takeError();
  if (!context.has(mha::Key))
    return context.error("a value without a key");
  const TensorView& key = context.in(mha::Key);
  if (!context.has(mha::Value)) {
    if (!isPacked(key, heads, 2))
      return context.error("a key without value must be [B,L,H,2,D]");
    return Heads{*split, unpacked(key, 0), unpacked(key, 1)};
  }
  const TensorView& value = context.in(mha::Value);
  if (key.rank() != value.rank())
    return context.error("key and value differ in rank");
  auto keyHeads = headsOf(context, key, heads, "the key");
  if (!keyHeads)
    return keyHeads.takeError();
  auto valueHeads = headsOf(context, value, heads, "the value");
  if (!valueHeads)
    return valueHeads.takeError();
  return Heads{*split, *keyHeads, *valueHeads};
}

llvm::Error addBias(KernelContext& context, Heads& heads) {
  const TensorView& bias = context.in(mha::ProjectionBias);
  const int64_t query = heads.query.shape[1] * heads.query.shape[3];
  const int64_t key = heads.key.shape[1] * heads.key.shape[3];
  const int64_t value = heads.value.shape[1] * heads.value.shape[3];
  if (bias.element != heads.query.element || heads.key.element != bias.element ||
      heads.value.element != bias.element || bias.elementCount() != query + key + value)
    return context.error("the bias must be [H*(2D+Dv)] of the query's element type");
  int64_t first = 0;
  for (TensorView* tensor : {&heads.query, &heads.key, &heads.value}) {
    // Heads of cross attention already include their part of the bias.
    if (tensor != &heads.query && context.has(mha::Key) && context.in(mha::Key).rank() == 4)
      break;
    auto sum = withProjectionBias(context, *tensor, mha::ProjectionBias, first);
    if (!sum)
      return sum.takeError();
    first += tensor->shape[1] * tensor->shape[3];
    *tensor = *sum;
  }
  return llvm::Error::success();
}

llvm::Error multiHeadAttention(KernelContext& context) {
  const int64_t count = context.node().intAttr("num_heads", 0);
  if (count <= 0)
    return context.error("num_heads must be positive");
  if (context.has(mha::PastLength) || context.has(mha::CacheIndirection))
    return context.error("past_sequence_length and cache_indirection, which is a past in a shared "
                         "buffer or of beams, are not supported");
  if (context.wants(3))
    return context.error("the result qk is not supported");
  if (context.has(mha::PastKey) != context.has(mha::PastValue))
    return context.error("a past of keys without one of values, or the other way round");
  auto heads = headsOfOperands(context, count);
  if (!heads)
    return heads.takeError();
  if (context.has(mha::ProjectionBias))
    if (llvm::Error error = addBias(context, *heads))
      return error;
  MaskedAttention attention;
  attention.query = heads->query;
  auto key = presentOf(context, 1, context.input(mha::PastKey), heads->key);
  if (!key)
    return key.takeError();
  attention.key = *key;
  auto value = presentOf(context, 2, context.input(mha::PastValue), heads->value);
  if (!value)
    return value.takeError();
  attention.value = *value;
  attention.pastRows = attention.key.shape[2] - heads->key.shape[2];
  attention.paddingOperand = mha::PaddingMask;
  attention.biasOperand = mha::AttentionBias;
  return maskedAttentionResult(context, attention);
}

} // namespace

void register_multi_head_attention(KernelRegistry& registry) {
  registry.add("com.microsoft::MultiHeadAttention", 1, multiHeadAttention);
}

} // namespace kvopt::kernels
