// Runs one model in ONNX Runtime after some tokens and prints steps per second, the peak memory of
// the process in MiB, and the milliseconds of the fastest step. bench/headline.sh and
// bench/engines.sh compile it and compare an export with what `kvopt rewrite` made of it.
//
//   headline MODEL.onnx PAST TOKENS STEPS THREADS [provider LIBRARY | operators LIBRARY]
//
// A step of one token continues after the step before it. A step of several tokens is a prefill:
// all of them start after PAST tokens.
//
// LIBRARY is kvopt's library for ONNX Runtime, as an execution provider or for custom operators.
// With a manifest next to the model, the past and the present of each cache are one buffer. Without
// one, the outputs of a step are the pasts of the next one, as ONNX Runtime allocated them: no copy
// is made between steps. Cached rows are random.
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace {

using Shape = std::vector<int64_t>;

/// Random numbers in the first `rows` of `room` rows; other rows are zeros.
template <class Number>
void fillRows(Ort::Value& cache, const Shape& shape, int64_t rows, Number (*number)(uint32_t)) {
  auto* data = cache.GetTensorMutableData<Number>();
  std::minstd_rand random;
  for (int64_t head = 0; head < shape[1]; ++head)
    for (int64_t row = 0; row < shape[2]; ++row)
      for (int64_t column = 0; column < shape[3]; ++column)
        *data++ = row < rows ? number(static_cast<uint32_t>(random())) : Number();
}

/// A cache of float32, float16, int8 or pairs of int4 with `room` rows. The first `rows` are
/// random. A float32 cache of width 1 holds the scales of codes, which are positive.
Ort::Value cacheOf(Shape shape, ONNXTensorElementDataType type, int64_t rows, int64_t room) {
  Ort::AllocatorWithDefaultOptions allocator;
  shape[0] = 1;
  shape[2] = room;
  Ort::Value cache = Ort::Value::CreateTensor(allocator, shape.data(), shape.size(), type);
  if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8)
    fillRows<int8_t>(cache, shape, rows,
                     [](uint32_t bits) { return static_cast<int8_t>(bits % 255); });
  else if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8)
    fillRows<uint8_t>(cache, shape, rows,
                      [](uint32_t bits) { return static_cast<uint8_t>(bits % 255); });
  else if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16) // 0.5 to 1, of both signs
    fillRows<uint16_t>(cache, shape, rows, [](uint32_t bits) {
      return static_cast<uint16_t>(0x3800 | (bits & 0x83ff));
    });
  else if (type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)
    throw std::runtime_error("a cache has another type than float32, float16, int8 and uint8");
  else if (shape[3] == 1)
    fillRows<float>(cache, shape, rows, [](uint32_t) { return 1 / 128.F; });
  else
    fillRows<float>(cache, shape, rows,
                    [](uint32_t bits) { return static_cast<float>(bits % 2001) / 1000 - 1; });
  return cache;
}

/// The numbers `first`, `first + step`, ….
Ort::Value integers(const Shape& shape, ONNXTensorElementDataType type, int64_t first,
                    int64_t step) {
  Ort::AllocatorWithDefaultOptions allocator;
  Ort::Value tensor = Ort::Value::CreateTensor(allocator, shape.data(), shape.size(), type);
  const auto count = static_cast<int64_t>(tensor.GetTensorTypeAndShapeInfo().GetElementCount());
  for (int64_t i = 0; i < count; ++i) {
    if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32)
      tensor.GetTensorMutableData<int32_t>()[i] = static_cast<int32_t>(first + i * step);
    else
      tensor.GetTensorMutableData<int64_t>()[i] = first + i * step;
  }
  return tensor;
}

class Decoder {
public:
  /// After `past` tokens, with room for `steps` steps of `tokens` tokens.
  Decoder(Ort::Env& env, const std::string& path, const Ort::SessionOptions& options, int64_t past,
          int64_t tokens, int64_t steps)
      : session(env, path.c_str(), options), binding(session), past(past), tokens(tokens) {
    const int64_t room = past + (tokens == 1 ? steps : tokens);
    std::ifstream file(path.substr(0, path.rfind('.')) + ".kv.json");
    isShared = file.good();
    const nlohmann::json manifest =
        isShared ? nlohmann::json::parse(file) : nlohmann::json::object();
    for (const auto& length : manifest.value("lengths", nlohmann::json::array()))
      lengths[length["input"]] = length["feed"];
    for (size_t i = 0; i < session.GetInputCount(); ++i) {
      const std::string name = session.GetInputNames()[i];
      const Ort::TypeInfo type = session.GetInputTypeInfo(i);
      const Shape shape = type.GetTensorTypeAndShapeInfo().GetShape();
      types[name] = type.GetTensorTypeAndShapeInfo().GetElementType();
      if (name.rfind("past_key_values", 0) != 0) {
        ranks[name] = shape.size();
        continue;
      }
      pasts.push_back(name);
      presents.push_back("present" + name.substr(15));
      caches.push_back(cacheOf(shape, types[name], past, isShared ? room : past));
    }
    // One buffer is bound once, other caches before each step.
    for (size_t i = 0; isShared && i < pasts.size(); ++i) {
      binding.BindInput(pasts[i].c_str(), caches[i]);
      binding.BindOutput(presents[i].c_str(), caches[i]);
    }
  }

  void step() {
    for (const auto& [name, rank] : ranks)
      binding.BindInput(name.c_str(), inputs.emplace_back(input(name, rank)));
    Ort::AllocatorWithDefaultOptions allocator;
    for (size_t i = 0; !isShared && i < pasts.size(); ++i) {
      binding.BindInput(pasts[i].c_str(), caches[i]);
      binding.BindOutput(presents[i].c_str(), allocator.GetInfo());
    }
    binding.BindOutput("logits", allocator.GetInfo());
    session.Run(Ort::RunOptions(), binding);
    if (!isShared && tokens == 1) {
      std::vector<Ort::Value> outputs = binding.GetOutputValues();
      for (size_t i = 0; i < caches.size(); ++i)
        caches[i] = std::move(outputs[i]);
    }
    inputs.clear();
    if (tokens == 1)
      ++past;
  }

private:
  Ort::Value input(const std::string& name, size_t rank) const {
    if (name == "attention_mask")
      return integers({1, past + tokens}, types.at(name), 1, 0);
    if (name == "position_ids")
      return integers({1, tokens}, types.at(name), past, 1);
    if (const auto length = lengths.find(name); length != lengths.end()) {
      int64_t value = length->second.rfind("total", 0) == 0 ? past + tokens : past;
      if (length->second.find("minus_one") != std::string::npos)
        --value;
      return integers(Shape(rank, 1), types.at(name), value, 0);
    }
    return integers({1, tokens}, types.at(name), 7, 0); // input_ids
  }

  Ort::Session session;
  Ort::IoBinding binding;
  bool isShared = false;
  int64_t past, tokens;
  std::map<std::string, ONNXTensorElementDataType> types;
  std::map<std::string, size_t> ranks; ///< ranks of inputs that are not caches
  std::map<std::string, std::string> lengths;
  std::vector<std::string> pasts, presents;
  std::vector<Ort::Value> caches, inputs;
};

/// Peak memory of this process in MiB.
double peakMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0)
      return std::stod(line.substr(6)) / 1024;
  return 0;
}

/// Makes sessions use the library.
void load(const std::string& entry, const std::string& library, Ort::Env& env,
          Ort::SessionOptions& options) {
  if (entry == "operators") {
    options.RegisterCustomOpsLibrary(library.c_str());
    return;
  }
  if (entry != "provider")
    throw std::runtime_error("the library is a provider or has operators, not '" + entry + "'");
  env.RegisterExecutionProviderLibrary("kvopt", library);
  std::vector<Ort::ConstEpDevice> devices;
  for (const Ort::ConstEpDevice& device : env.GetEpDevices())
    if (std::string(device.EpName()) == "kvopt")
      devices.push_back(device);
  options.AppendExecutionProvider_V2(env, devices, Ort::KeyValuePairs());
}

} // namespace

int main(int argc, char** argv) try {
  if (argc != 6 && argc != 8)
    throw std::runtime_error(
        "usage: headline MODEL.onnx PAST TOKENS STEPS THREADS [ENTRY LIBRARY]");
  Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "headline");
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(std::stoi(argv[5]));
  if (argc == 8)
    load(argv[6], argv[7], env, options);
  const int64_t tokens = std::stoll(argv[3]);
  const int steps = std::stoi(argv[4]);
  const int warmUp = tokens == 1 ? 3 : 1;
  Decoder decoder(env, argv[1], options, std::stoll(argv[2]), tokens, steps + warmUp);
  for (int i = 0; i < warmUp; ++i)
    decoder.step();
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    decoder.step();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  std::printf("%.3f %.0f %.4f\n", 1 / times[times.size() / 2], peakMemory(), times[0] * 1000);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "headline: %s\n", error.what());
  return 1;
}
