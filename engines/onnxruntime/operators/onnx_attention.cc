// ONNX's Attention over the engine's tensors: append, lengths, masks, attention.
//
// runtime/kernels/attention/attention.cc describes operands and hidden keys. Windows, which only
// opset 25 has, and the result qk_matmul_output are left to the engine.
#include "engines/onnxruntime/operators/onnx_attention.h"

#include "engines/onnxruntime/operators/attention_heads.h"
#include "engines/onnxruntime/operators/attention_mask.h"
#include "ir/ops/attention_operands.h"

#include <algorithm>
#include <cmath>

namespace kvopt::onnxruntime {
namespace attention = ir::onnx_attention;

namespace {

/// Before 1.30, ONNX Runtime placed the rows of a chunk at the first keys of a cache, and averaged
/// the values for a row that sees no key.
constexpr uint32_t firstCorrectedVersion = 30;

/// What the attributes say.
struct OnnxAttentionSettings {
  int64_t heads = 0;  ///< of a query [B,S,H*D]; 0 if absent
  int64_t groups = 0; ///< of key and value; 0 if absent
  std::optional<float> scale;
  float softcap = 0.0f;
  bool causal = false;
};

class OnnxAttention : public Operation {
public:
  explicit OnnxAttention(const OnnxAttentionSettings& ofNode) : settings(ofNode) {}
  void compute(Call& call) const override;

private:
  HeadRows heads(const Call& call, unsigned operand, int64_t count, const char* what) const;
  /// Hides keys by nonpad_kv_seqlen, which `lengths` receives, is_causal and the mask.
  void hideKeys(Call& call, int64_t pastRows, std::vector<int64_t>& lengths,
                simd::AttentionView& view) const;

  OnnxAttentionSettings settings;
  CopyNotice notice{CopyNotice::Presents::longer};
};

HeadRows OnnxAttention::heads(const Call& call, unsigned operand, int64_t count,
                              const char* what) const {
  const HeadRows rows = headsOf(call, call.input(operand), count, what);
  if (count != 0 && rows.heads != count)
    call.fail(std::string(what) + " has " + std::to_string(rows.heads) + " heads, not " +
              std::to_string(count));
  return rows;
}

void OnnxAttention::hideKeys(Call& call, int64_t pastRows, std::vector<int64_t>& lengths,
                             simd::AttentionView& view) const {
  const int64_t rows = view.queryRows, keys = view.totalLength;
  const bool hasLengths = call.has(attention::KeyLengths);
  std::optional<AttentionMask> mask;
  if (call.has(attention::Mask)) {
    mask.emplace(call, call.input(attention::Mask));
    if (mask->columns() != keys)
      call.fail("attn_mask has " + std::to_string(mask->columns()) + " columns for " +
                std::to_string(keys) + " keys");
  }
  // ONNX Runtime shows a single row all keys after a past.
  view.causal = settings.causal && !(rows == 1 && pastRows > 0);
  if (hasLengths) {
    lengths = call.integers(attention::KeyLengths);
    call.require(static_cast<int64_t>(lengths.size()) == view.batches,
                 "nonpad_kv_seqlen must have one number per batch row");
    for (const int64_t length : lengths)
      if (length < 0 || length > keys)
        call.fail("nonpad_kv_seqlen " + std::to_string(length) + " for " + std::to_string(keys) +
                  " keys");
    view.totalLengths = lengths.data();
    view.totalLength = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  } else if (view.causal && keys - pastRows >= rows) {
    // The last row hides later keys from all rows.
    view.totalLength = pastRows + rows;
  } else if (view.causal) {
    view.causal = false;
    if (!mask)
      mask = AttentionMask::open(call, keys);
    mask->hideAfter(call, rows, pastRows);
  }
  if (!mask)
    return;
  mask->keepFirst(call, view.totalLength);
  mask->apply(call, view);
}

void OnnxAttention::compute(Call& call) const {
  const Tensor given = call.input(attention::Query);
  for (const unsigned operand : {attention::Key, attention::Value})
    call.require(call.input(operand).rank() == given.rank(), "query, key and value differ in rank");
  const HeadRows query = heads(call, attention::Query, settings.heads, "the query");
  const HeadRows key = heads(call, attention::Key, settings.groups, "the key");
  const HeadRows value = heads(call, attention::Value, settings.groups, "the value");
  viewOfHeads(call, query, key, value); // checks the heads
  const std::optional<Tensor> pastKey = pastOf(call, attention::PastKey, key);
  const std::optional<Tensor> pastValue = pastOf(call, attention::PastValue, value);
  const int64_t pastRows = pastKey ? pastKey->shape[2] : 0;
  call.require(!pastKey || (pastValue && pastValue->shape[2] == pastRows),
               "the pasts of keys and values differ in length");
  const JoinedRows keys = joinedRows(call, 1, pastKey, key, notice);
  const JoinedRows values = joinedRows(call, 2, pastValue, value, notice);
  simd::AttentionView view = viewOfHeads(call, query, keys.rows, values.rows);
  view.scale = settings.scale.value_or(view.scale);
  view.softcap = settings.softcap;
  std::vector<int64_t> lengths;
  hideKeys(call, pastRows, lengths, view);
  if (given.rank() == 4) {
    const Tensor output =
        call.output(0, query.type, {query.batches, query.heads, query.rows, value.width});
    return attendInto(call, keys, values, rowsOf(output), view);
  }
  const Tensor output =
      call.output(0, query.type, {query.batches, query.rows, query.heads * value.width});
  attendInto(call, keys, values, rowsOfHeads(output, query.heads, 0, query.heads), view);
}

std::string readOnnxAttributes(const NodeDescription& node, OnnxAttentionSettings& settings) {
  for (const auto& [name, value] : node.attributes) {
    const bool isWindow = name == "left_window_size" || name == "right_window_size";
    if (isWindow && node.integer(name.c_str(), -1) == -1)
      continue;
    // Results are computed in float32 whatever softmax_precision says.
    if (name != "is_causal" && name != "scale" && name != "softcap" && name != "q_num_heads" &&
        name != "kv_num_heads" && name != "softmax_precision" && name != "qk_matmul_output_mode" &&
        !isNeutral(value))
      return "attribute " + name;
  }
  const int64_t causal = node.integer("is_causal", 0);
  if (causal != 0 && causal != 1)
    return "attribute is_causal";
  settings.causal = causal == 1;
  settings.heads = node.integer("q_num_heads", 0);
  settings.groups = node.integer("kv_num_heads", 0);
  if (settings.heads < 0 || settings.groups < 0)
    return "attribute q_num_heads or kv_num_heads";
  if (node.attributes.count("scale"))
    settings.scale = node.number("scale", 0.0f);
  settings.softcap = node.number("softcap", 0.0f);
  if (settings.scale && !(*settings.scale > 0.0f && std::isfinite(*settings.scale)))
    return "attribute scale";
  return settings.softcap >= 0.0f && std::isfinite(settings.softcap) ? "" : "attribute softcap";
}

std::string readOnnxOperands(const NodeDescription& node) {
  const ElementType type = node.typeOf(attention::Query);
  if (type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT && type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16)
    return std::string("query of ") + elementName(type);
  for (const unsigned operand :
       {attention::Key, attention::Value, attention::PastKey, attention::PastValue})
    if (node.has(operand) ? node.typeOf(operand) != type : operand <= attention::Value)
      return "type of operand " + std::to_string(operand);
  const ElementType mask = node.typeOf(attention::Mask);
  if (node.has(attention::Mask) && mask != type && mask != ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL)
    return "type of attn_mask";
  for (size_t i = attention::OperandCount; i < node.inputs.size(); ++i)
    if (node.has(i))
      return "operand " + std::to_string(i);
  if (node.has(attention::PastKey) != node.has(attention::PastValue))
    return "a past of keys without one of values, or the reverse";
  if (node.has(attention::KeyLengths) &&
      (node.has(attention::PastKey) ||
       node.typeOf(attention::KeyLengths) != ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64))
    return "nonpad_kv_seqlen with a past, or of another type than int64";
  return node.wants(3) ? "result qk_matmul_output" : "";
}

} // namespace

Offer onnxAttention(const NodeDescription& node) {
  if (engineVersion() < firstCorrectedVersion)
    return Offer::refused("another result for hidden keys before ONNX Runtime 1.30");
  OnnxAttentionSettings settings;
  if (std::string reason = readOnnxAttributes(node, settings); !reason.empty())
    return Offer::refused(std::move(reason));
  if (std::string reason = readOnnxOperands(node); !reason.empty())
    return Offer::refused(std::move(reason));
  return {std::make_unique<OnnxAttention>(settings), ""};
}

} // namespace kvopt::onnxruntime
