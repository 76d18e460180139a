// MultiHeadAttention over the engine's tensors: bias, append, masks, attention.
//
// runtime/kernels/attention/multi_head_attention.cc describes operands and masks.
#include "engines/onnxruntime/operators/multi_head_attention.h"

#include "engines/onnxruntime/operators/attention_heads.h"
#include "engines/onnxruntime/operators/attention_mask.h"
#include "ir/ops/contrib/multi_head_operands.h"
#include "runtime/simd/attention/padding_mask.h"

#include <algorithm>
#include <cmath>

namespace kvopt::onnxruntime {
namespace mha = ir::mha;
using namespace simd;

namespace {

constexpr ElementType floats32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;

/// What the attributes say.
struct MhaSettings {
  int64_t heads = 0;
  float scale = 0.0f; ///< 0: 1 / sqrt(D)
  float hidden = 0.0f;
  bool causal = false;
};

class MultiHeadAttention : public Operation {
public:
  explicit MultiHeadAttention(const MhaSettings& ofNode) : settings(ofNode) {}
  void compute(Call& call) const override;

private:
  void addBias(Call& call, bool isQueryAlone, HeadRows& query, HeadRows& key,
               HeadRows& value) const;
  void setMask(Call& call, int64_t pastRows, AttentionView& view) const;

  MhaSettings settings;
  CopyNotice notice{CopyNotice::Presents::longer};
};

/// Copies of the rows plus numbers [H*D], in scratch memory.
HeadRows plus(Call& call, const HeadRows& from, const float* bias) {
  const FloatStorage storage = *storageOf(from.type);
  const HeadRows to =
      rowsOf(call.scratchTensor(from.type, {from.batches, from.heads, from.rows, from.width}));
  const int64_t units = from.batches * from.heads;
  auto* numbers = call.scratchTensor(floats32, {units, from.width}).as<float>();
  call.forEach(units, from.count(), [&](int64_t unit) {
    const int64_t batch = unit / from.heads, head = unit % from.heads;
    float* sums = numbers + unit * from.width;
    for (int64_t row = 0; row < from.rows; ++row) {
      loadNumbers(from.row(batch, head, row), storage, from.width, sums);
      for (int64_t i = 0; i < from.width; ++i)
        sums[i] += bias[head * from.width + i];
      storeNumbers(sums, storage, from.width, to.row(batch, head, row));
    }
  });
  return to;
}

/// Heads of cross attention already include their part of the bias.
void MultiHeadAttention::addBias(Call& call, bool isQueryAlone, HeadRows& query, HeadRows& key,
                                 HeadRows& value) const {
  const Tensor bias = call.input(mha::ProjectionBias);
  const int64_t ofQuery = query.heads * query.width, ofKey = key.heads * key.width;
  if (bias.type != query.type || bias.count() != ofQuery + ofKey + value.heads * value.width)
    call.fail("the bias is " + std::string(elementName(bias.type)) + textOf(bias.shape) +
              "; it should be [H*(2D+Dv)] of the query's element type");
  const float* numbers = call.floats(bias);
  query = plus(call, query, numbers);
  if (isQueryAlone)
    return;
  key = plus(call, key, numbers + ofQuery);
  value = plus(call, value, numbers + ofQuery + ofKey);
}

void MultiHeadAttention::setMask(Call& call, int64_t pastRows, AttentionView& view) const {
  const int64_t rows = view.queryRows, keys = view.totalLength;
  std::optional<Tensor> bias;
  if (call.has(mha::AttentionBias)) {
    bias = call.input(mha::AttentionBias);
    const Shape& shape = bias->shape;
    if (!storageOf(bias->type) || bias->rank() != 4 ||
        (shape[0] != 1 && shape[0] != view.batches) ||
        (shape[1] != 1 && shape[1] != view.queryHeads) || shape[2] != rows || shape[3] != keys)
      call.fail("attention_bias is " + textOf(shape) + "; it should be [1|B,1|H," +
                std::to_string(rows) + "," + std::to_string(keys) + "]");
  }
  const bool isAligned = keys - pastRows == rows;
  if (!call.has(mha::PaddingMask) && (!settings.causal || (isAligned && !bias))) {
    view.causal = settings.causal;
    if (bias)
      AttentionMask(call, *bias).apply(call, view);
    return;
  }
  PaddingMask sum;
  sum.rows = rows;
  sum.keys = keys;
  sum.pastRows = pastRows;
  sum.causal = settings.causal;
  sum.hidden = settings.hidden;
  std::vector<int64_t> visible;
  if (call.has(mha::PaddingMask)) {
    const Shape shape = call.input(mha::PaddingMask).shape;
    const auto form = paddingFormOf(shape, view.batches, rows, keys, false);
    if (!form)
      call.fail(
          "key_padding_mask is " + textOf(shape) +
          "; it should be [B], [3B+2], [B,T] or [B,S,T] with B = " + std::to_string(view.batches) +
          ", S = " + std::to_string(rows) + " and T = " + std::to_string(keys));
    visible = call.integers(mha::PaddingMask);
    sum.form = *form;
    sum.visible = visible.data();
    sum.batches = view.batches;
  }
  if (bias) {
    sum.batches = std::max(sum.batches, bias->shape[0]);
    sum.heads = bias->shape[1];
    sum.bias = call.floats(*bias);
    sum.biasStrides[0] = bias->shape[0] == 1 ? 0 : sum.heads * rows * keys;
    sum.biasStrides[1] = sum.heads == 1 ? 0 : rows * keys;
    sum.biasStrides[2] = keys;
    sum.biasStrides[3] = 1;
  }
  const Tensor mask = call.scratchTensor(floats32, {sum.batches, sum.heads, rows, keys});
  sum.write(mask.as<float>());
  AttentionMask(call, mask).apply(call, view);
}

void MultiHeadAttention::compute(Call& call) const {
  const Tensor given = call.input(mha::Query);
  const Tensor givenKey = call.input(mha::Key), givenValue = call.input(mha::Value);
  call.require(given.rank() == 3, "the query must be [B,S,H*D]");
  call.require(givenKey.rank() == givenValue.rank(), "key and value differ in rank");
  HeadRows query = headsOf(call, given, settings.heads, "the query");
  HeadRows key = headsOf(call, givenKey, settings.heads, "the key");
  HeadRows value = headsOf(call, givenValue, settings.heads, "the value");
  viewOfHeads(call, query, key, value); // checks the heads
  call.require(key.heads == settings.heads, "key and value do not have num_heads heads");
  if (call.has(mha::ProjectionBias))
    addBias(call, givenKey.rank() == 4, query, key, value);
  const std::optional<Tensor> pastKey = pastOf(call, mha::PastKey, key);
  const std::optional<Tensor> pastValue = pastOf(call, mha::PastValue, value);
  const int64_t pastRows = pastKey ? pastKey->shape[2] : 0;
  call.require(!pastKey || (pastValue && pastValue->shape[2] == pastRows),
               "the pasts of keys and values differ in length");
  const JoinedRows keys = joinedRows(call, 1, pastKey, key, notice);
  const JoinedRows values = joinedRows(call, 2, pastValue, value, notice);
  AttentionView view = viewOfHeads(call, query, keys.rows, values.rows);
  if (settings.scale != 0.0f)
    view.scale = settings.scale;
  setMask(call, pastRows, view);
  const Tensor output =
      call.output(0, query.type, {query.batches, query.rows, query.heads * value.width});
  attendInto(call, keys, values, rowsOfHeads(output, query.heads, 0, query.heads), view);
}

std::string reasonAgainst(const NodeDescription& node, MhaSettings& settings) {
  for (const auto& [name, value] : node.attributes)
    if (name != "num_heads" && name != "scale" && name != "unidirectional" &&
        name != "mask_filter_value" && !isNeutral(value))
      return "attribute " + name;
  settings.heads = node.integer("num_heads", 0);
  if (settings.heads <= 0)
    return "num_heads";
  settings.scale = node.number("scale", 0.0f);
  settings.hidden = node.number("mask_filter_value", -10000.0f);
  if (!std::isfinite(settings.hidden) || !std::isfinite(settings.scale))
    return "attribute mask_filter_value or scale";
  settings.causal = node.integer("unidirectional", 0) == 1;
  if (!node.has(mha::Key) || !node.has(mha::Value))
    return "key and value packed in one operand";
  for (size_t i = mha::PastLength; i < node.inputs.size(); ++i)
    if (node.has(i))
      return i == mha::PastLength ? "past_sequence_length" : "operand " + std::to_string(i);
  if (node.has(mha::PastKey) != node.has(mha::PastValue))
    return "a past of keys without one of values, or the reverse";
  const ElementType type = node.typeOf(mha::Query);
  if (type != floats32 && type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16)
    return std::string("query of ") + elementName(type);
  for (const unsigned operand : {mha::Key, mha::Value, mha::ProjectionBias, mha::AttentionBias,
                                 mha::PastKey, mha::PastValue})
    if (node.has(operand) && node.typeOf(operand) != type)
      return "type of operand " + std::to_string(operand);
  if (node.has(mha::PaddingMask) &&
      node.typeOf(mha::PaddingMask) != ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32)
    return "type of key_padding_mask";
  return node.wants(3) ? "result qk" : "";
}

} // namespace

Offer multiHeadAttention(const NodeDescription& node) {
  MhaSettings settings;
  if (std::string reason = reasonAgainst(node, settings); !reason.empty())
    return Offer::refused(std::move(reason));
  return {std::make_unique<MultiHeadAttention>(settings), ""};
}

} // namespace kvopt::onnxruntime
