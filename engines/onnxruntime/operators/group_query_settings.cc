// Reading of attributes and operand types, and what is not supported.
#include "engines/onnxruntime/operators/group_query_settings.h"

#include <algorithm>
#include <cctype>

namespace kvopt::onnxruntime {
using namespace simd;
using namespace gqa;

namespace {

/// Letters as ONNX Runtime compares them.
std::string upperCase(std::string text) {
  for (char& letter : text)
    letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return text;
}

/// Reads attributes that change the computation; a reason if one is not supported.
std::string readAttributes(const NodeDescription& node, GqaSettings& settings) {
  for (const auto& [name, value] : node.attributes) {
    if (name == "num_heads" || name == "kv_num_heads" || name == "scale" || name == "softcap" ||
        name == "local_window_size" || name == "causal" || name == "do_rotary" ||
        name == "rotary_interleaved" || name == "smooth_softmax" || name == "qk_norm_epsilon" ||
        name == "k_quant_type" || name == "v_quant_type" || name == "kv_cache_bit_width")
      continue;
    // sliding_window_cache and qk_output are among them.
    if (!isNeutral(value))
      return "attribute " + name;
  }
  const auto isOn = [&](const char* name) { return node.integer(name, 0) == 1; };
  settings.heads = node.integer("num_heads", 0);
  settings.groups = node.integer("kv_num_heads", 0);
  constexpr int64_t most = int64_t{1} << 30;
  if (settings.heads <= 0 || settings.groups <= 0 || settings.heads > most ||
      settings.heads % settings.groups != 0)
    return "num_heads";
  settings.scale = node.number("scale", 0.0f);
  settings.softcap = std::max(0.0f, node.number("softcap", 0.0f));
  const int64_t window = node.integer("local_window_size", -1);
  const int64_t causal = node.integer("causal", 1);
  if ((causal != 0 && causal != 1) || (causal == 0 && window != -1))
    return "attribute causal";
  if (window == 0)
    return "attribute local_window_size";
  // Until 1.23, ONNX Runtime did not count a row's own key.
  constexpr uint32_t firstWithOwnKey = 24;
  settings.window = window < 0 ? 0 : window + (engineVersion() < firstWithOwnKey ? 1 : 0);
  settings.causal = causal == 1;
  settings.rotates = isOn("do_rotary");
  settings.interleaved = isOn("rotary_interleaved");
  settings.hasZeroSink = isOn("smooth_softmax");
  settings.normEpsilon = node.number("qk_norm_epsilon", 1e-6f);
  return "";
}

std::string readQuantization(const NodeDescription& node, GqaSettings& settings) {
  const std::string keys = upperCase(node.text("k_quant_type", "NONE"));
  const std::string values = upperCase(node.text("v_quant_type", "NONE"));
  for (const std::string& type : {keys, values})
    if (type != "NONE" && type != "PER_TENSOR" && type != "PER_CHANNEL")
      return "k_quant_type or v_quant_type " + type;
  const int64_t bits = node.integer("kv_cache_bit_width", 0);
  if ((keys == "NONE") != (values == "NONE"))
    return "attribute k_quant_type";
  if (keys == "NONE")
    return bits != 0 || node.has(KeyScale) || node.has(ValueScale) ? "attribute kv_cache_bit_width"
                                                                   : "";
  if (bits != 8 && bits != 4)
    return "attribute kv_cache_bit_width";
  if (!node.has(KeyScale) || !node.has(ValueScale))
    return "k_scale is missing";
  settings.codes = bits == 8 ? CodeForm::bytes : CodeForm::nibbles;
  settings.keyScalesPerColumn = keys == "PER_CHANNEL";
  settings.valueScalesPerColumn = values == "PER_CHANNEL";
  return "";
}

std::string readOperands(const NodeDescription& node, GqaSettings& settings) {
  const ElementType type = node.typeOf(Query);
  if (type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT && type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16)
    return std::string("query of ") + elementName(type);
  for (size_t i = OperandCount; i < node.inputs.size(); ++i)
    if (node.has(i))
      return "operand " + std::to_string(i);
  if (!node.has(SequenceLengths) || !node.has(TotalLength))
    return "seqlens_k is missing";
  for (const unsigned operand :
       {Key, Value, CosineCache, SineCache, Bias, HeadSink, QueryNormWeight, KeyNormWeight})
    if (node.has(operand) && node.typeOf(operand) != type)
      return "type of operand " + std::to_string(operand);
  const ElementType cache = !settings.codes ? type
                            : *settings.codes == CodeForm::bytes
                                ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8
                                : ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
  for (const unsigned operand : {PastKey, PastValue})
    if (node.has(operand) && node.typeOf(operand) != cache)
      return "type of operand " + std::to_string(operand);
  if (node.has(QueryNormWeight) != node.has(KeyNormWeight))
    return "a norm weight for the query without one for the key";
  settings.normalizes = node.has(QueryNormWeight);
  if (settings.rotates && (!node.has(CosineCache) || !node.has(SineCache)))
    return "do_rotary without cos_cache";
  if (node.wants(3))
    return "result output_qk";
  return "";
}

} // namespace

std::string readSettings(const NodeDescription& node, GqaSettings& settings) {
  for (const auto read : {readAttributes, readQuantization, readOperands})
    if (std::string reason = read(node, settings); !reason.empty())
      return reason;
  return "";
}

} // namespace kvopt::onnxruntime
