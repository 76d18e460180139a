// Reading of attributes, query, mask, sinks and lengths.
#include "engines/onnxruntime/operators/attention_settings.h"

#include <algorithm>

namespace kvopt::onnxruntime {

std::string readAttributes(const NodeDescription& node,
                           std::initializer_list<std::string_view> others,
                           AttentionSettings& settings) {
  for (const auto& [name, value] : node.attributes) {
    const bool isKnown = name == "scale" || name == "softcap" || name == "window" ||
                         name == "causal" || name == "mask_boolean" ||
                         std::find(others.begin(), others.end(), name) != others.end();
    if (!isKnown && !isNeutral(value))
      return "attribute " + name;
  }
  settings.scale = node.number("scale", 1.0f);
  settings.softcap = node.number("softcap", 0.0f);
  settings.window = node.integer("window", 0);
  settings.causal = node.integer("causal", 0) != 0;
  if (node.attributes.count("mask_boolean"))
    settings.hasBooleanMask = node.integer("mask_boolean", 0) != 0;
  return settings.window < 0 || !(settings.softcap >= 0.0f) ? "attribute window or softcap" : "";
}

std::string reasonAgainstTypes(const NodeDescription& node, unsigned mask, unsigned sinks) {
  if (!storageOf(node.typeOf(0)))
    return std::string("query of ") + elementName(node.typeOf(0));
  if (node.has(sinks) && node.typeOf(sinks) != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)
    return std::string("sinks of ") + elementName(node.typeOf(sinks));
  const ElementType ofMask = node.typeOf(mask);
  // A library of custom operators does not know the mask's type before it runs.
  const bool isSupported = ofMask == ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED ||
                           ofMask == ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL || storageOf(ofMask);
  return isSupported ? "" : std::string("mask of ") + elementName(ofMask);
}

AttentionOperands::AttentionOperands(Call& call, const AttentionSettings& settings,
                                     unsigned maskPlace, unsigned sinksPlace)
    : query(call.input(0)) {
  call.require(query.rank() == 4, "the query must be [B,H,S,D]");
  const std::optional<simd::FloatStorage> storage = storageOf(query.type);
  call.require(storage && query.shape[3] > 0,
               "the query has no columns, or an element type that is not supported");
  view.batches = batches();
  view.queryHeads = query.shape[1];
  view.queryRows = rows();
  view.keyWidth = query.shape[3];
  view.queryStorage = view.outputStorage = *storage;
  view.query = query.data;
  view.queryStrides = rowsOf(query).strides;
  view.scale = settings.scale;
  view.causal = settings.causal;
  view.window = settings.window;
  view.softcap = settings.softcap;
  if (call.has(sinksPlace)) {
    const Tensor sinks = call.input(sinksPlace);
    call.require(sinks.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT &&
                     sinks.count() == view.queryHeads,
                 "sinks must be one float per query head");
    view.sinks = sinks.as<float>();
  }
  if (call.has(maskPlace)) {
    const Tensor given = call.input(maskPlace);
    const bool isBoolean = given.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL;
    call.require(settings.hasBooleanMask.value_or(isBoolean) == isBoolean,
                 "mask_boolean does not agree with the mask's element type");
    mask.emplace(call, given);
  }
}

void AttentionOperands::setHeads(const Call& call, int64_t heads) {
  call.require(heads > 0 && view.queryHeads % heads == 0,
               "the query's heads are not a multiple of the heads of keys and values");
  view.kvHeads = heads;
}

void AttentionOperands::setRowType(const Call& call, ElementType type) {
  static constexpr float one = 1.0f;
  if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8) {
    view.keyScales = view.valueScales = &one;
    return;
  }
  const std::optional<simd::FloatStorage> storage = storageOf(type);
  if (!storage)
    call.fail(std::string("keys and values of ") + elementName(type) + " are not supported");
  view.cacheStorage = *storage;
}

void AttentionOperands::setRows(const Call& call, const Tensor& key, const Tensor& value) {
  call.require(key.rank() == 4 && value.rank() == 4, "keys and values must be [B,G,T,D]");
  for (const size_t axis : {0u, 1u, 2u})
    call.require(key.shape[axis] == value.shape[axis],
                 "keys and values differ in batch size, number of heads, or length");
  call.require(key.shape[0] == batches(), "query and keys differ in batch size");
  call.require(key.type == value.type, "keys and values differ in element type");
  setHeads(call, key.shape[1]);
  view.totalLength = key.shape[2];
  view.key = key.data;
  view.value = value.data;
  view.keyStrides = rowsOf(key).strides;
  view.valueStrides = rowsOf(value).strides;
}

void AttentionOperands::setNumbers(const Call& call, const Tensor& key, const Tensor& value) {
  setRows(call, key, value);
  call.require(key.shape[3] == view.keyWidth, "query and keys differ in width");
  view.valueWidth = value.shape[3];
  setRowType(call, key.type);
}

std::vector<int64_t> AttentionOperands::setLengths(const Call& call, unsigned place, int64_t most) {
  std::vector<int64_t> lengths = pastLengths(call, place, batches());
  for (int64_t& length : lengths) {
    if (length < 0 || length > most || rows() > most - length)
      call.fail("past length " + std::to_string(length) + " and " + std::to_string(rows()) +
                " new rows exceed the capacity of " + std::to_string(most) + " rows");
    length += rows();
  }
  view.totalLengths = lengths.data();
  view.totalLength = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  return lengths;
}

void AttentionOperands::attend(Call& call) {
  const Tensor output =
      call.output(0, query.type, {batches(), view.queryHeads, rows(), view.valueWidth});
  view.output = output.data;
  view.outputStrides = rowsOf(output).strides;
  if (output.count() != 0)
    call.attend({&view, 1});
}

std::vector<int64_t> pastLengths(const Call& call, unsigned place, int64_t batches) {
  std::vector<int64_t> lengths = call.integers(place);
  if (lengths.size() == 1)
    lengths.resize(static_cast<size_t>(batches), lengths.front());
  call.require(static_cast<int64_t>(lengths.size()) == batches,
               "past_length must be int64 of shape [1] or [batch]");
  return lengths;
}

} // namespace kvopt::onnxruntime
