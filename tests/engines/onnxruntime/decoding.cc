// Feeding of tokens, masks, positions and caches by the names of inputs.
#include "tests/engines/onnxruntime/decoding.h"

#include "support/half.h"

#include <algorithm>
#include <stdexcept>

namespace kvopt {

namespace {

int64_t widthOf(ONNXTensorElementDataType type) {
  switch (type) {
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
    return 4;
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
    return 2;
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8:
    return 1;
  default:
    throw std::runtime_error("a cache of an unexpected type");
  }
}

} // namespace

Decoding::Decoding(Ort::Session& ofSession, Binding howBound, int64_t batchRows, int64_t cacheRows)
    : session(ofSession), binding(howBound), batch(batchRows) {
  inputs = session.GetInputNames();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool isState = inputs[i].rfind("past_conv.", 0) == 0;
    if (!isState && inputs[i].rfind("past_key_values.", 0) != 0)
      continue;
    const auto type = session.GetInputTypeInfo(i);
    const auto info = type.GetTensorTypeAndShapeInfo();
    Cache cache{inputs[i],
                (isState ? "present_conv" : "present") + inputs[i].substr(inputs[i].find('.')),
                info.GetElementType(), info.GetShape(), isState};
    cache.shape[0] = batch;
    // The width of a head is symbolic in some models, which all have heads of 16 columns.
    constexpr int64_t symbolicWidth = 16;
    if (cache.shape.back() < 0)
      cache.shape.back() = symbolicWidth;
    areRowsFixed = areRowsFixed || (!isState && cache.shape[2] > 0);
    if (!isState && cache.shape[2] <= 0)
      cache.shape[2] = binding == Binding::growing ? 0 : cacheRows;
    int64_t bytes = widthOf(cache.type);
    for (const int64_t extent : cache.shape)
      bytes *= extent;
    for (auto& buffer : cache.buffers)
      buffer.resize(static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    caches.push_back(std::move(cache));
  }
}

bool Decoding::has(const char* input) const {
  return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
}

bool Decoding::hasStates() const {
  return std::any_of(caches.begin(), caches.end(),
                     [](const Cache& cache) { return cache.isState; });
}

Ort::Value Decoding::tensorOf(Cache& cache, unsigned buffer) {
  auto& bytes = cache.buffers[buffer];
  return Ort::Value::CreateTensor(memory, bytes.data(), bytes.size(), cache.shape.data(),
                                  cache.shape.size(), cache.type);
}

std::vector<float> Decoding::take(const Step& step) {
  const int64_t total = taken + step.count;
  std::vector<int64_t> seen, positions;
  for (int64_t b = 0; b < batch; ++b) {
    const auto past = mask.begin() + b * taken;
    const auto fresh = step.mask.begin() + b * step.count;
    seen.insert(seen.end(), past, past + taken);
    seen.insert(seen.end(), fresh, fresh + step.count);
    int64_t position = -1;
    for (int64_t t = 0; t < total; ++t) {
      position += seen[static_cast<size_t>(b * total + t)];
      if (t >= taken)
        positions.push_back(std::max<int64_t>(position, 0));
    }
  }
  std::vector<int64_t> tokens = step.tokens;
  Ort::IoBinding bound(session);
  std::vector<Ort::Value> kept;
  const auto bindNumbers = [&](const char* name, std::vector<int64_t>& numbers, int64_t columns) {
    if (!has(name))
      return;
    const int64_t shape[] = {batch, columns};
    kept.push_back(
        Ort::Value::CreateTensor<int64_t>(memory, numbers.data(), numbers.size(), shape, 2));
    bound.BindInput(name, kept.back());
  };
  bindNumbers("input_ids", tokens, step.count);
  bindNumbers("attention_mask", seen, total);
  bindNumbers("position_ids", positions, step.count);
  std::vector<int64_t> pastLength = {taken};
  std::vector<int64_t> first(static_cast<size_t>(batch), taken);
  std::vector<int64_t> lengths(static_cast<size_t>(batch), total);
  const auto bindLengths = [&](const char* name, std::vector<int64_t>& numbers) {
    if (!has(name))
      return;
    const int64_t shape[] = {static_cast<int64_t>(numbers.size())};
    kept.push_back(
        Ort::Value::CreateTensor<int64_t>(memory, numbers.data(), numbers.size(), shape, 1));
    bound.BindInput(name, kept.back());
  };
  bindLengths("past_length", pastLength);
  bindLengths("write_indices", first);
  bindLengths("nonpad_kv_seqlen", lengths);
  bound.BindOutput("logits", memory);
  for (Cache& cache : caches) {
    const unsigned from = binding == Binding::twoBuffers ? steps % 2 : 0;
    const unsigned to = binding == Binding::twoBuffers ? 1 - from : 0;
    if (binding != Binding::growing && !cache.isState) {
      bound.BindInput(cache.past.c_str(), kept.emplace_back(tensorOf(cache, from)));
      bound.BindOutput(cache.present.c_str(), kept.emplace_back(tensorOf(cache, to)));
      continue;
    }
    if (!cache.grown)
      cache.grown = tensorOf(cache, 0);
    bound.BindInput(cache.past.c_str(), cache.grown);
    bound.BindOutput(cache.present.c_str(), memory);
  }
  session.Run(Ort::RunOptions{nullptr}, bound);
  std::vector<Ort::Value> results = bound.GetOutputValues();
  for (size_t i = 0; i < caches.size(); ++i)
    if (binding == Binding::growing || caches[i].isState)
      caches[i].grown = std::move(results[i + 1]);
  mask = std::move(seen);
  taken = total;
  ++steps;
  const auto info = results[0].GetTensorTypeAndShapeInfo();
  std::vector<float> logits(info.GetElementCount());
  for (size_t i = 0; i < logits.size(); ++i)
    logits[i] = info.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
                    ? results[0].GetTensorData<float>()[i]
                    : f16ToFloat(static_cast<const uint16_t*>(results[0].GetTensorRawData())[i]);
  return logits;
}

} // namespace kvopt
