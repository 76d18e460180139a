// Runs an exported encoder-decoder and its rewritten form in turns in ONNX Runtime, and prints how
// many times as fast the rewritten one takes a step of one token, the milliseconds of the fastest
// step of each, and the largest difference of their logits. bench/encoder_decoders.sh compiles it.
//
//   encoder_decoders EXPORT.onnx REWRITTEN.onnx PAST ROWS STEPS THREADS [LIBRARY]
//
// Each step follows PAST tokens and reads ROWS rows of an encoder. The manifest next to the
// rewritten model says which inputs are caches, and which of them no step changes. LIBRARY is
// kvopt's library, which the rewritten model then uses as an execution provider.
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace {

using Shape = std::vector<int64_t>;

struct Lengths {
  int64_t past, rows;
};

/// A cache that both models have.
struct Cache {
  std::string present; ///< empty: no step changes the cache
  bool isShared;       ///< past and present of the rewritten model are one buffer
};

struct Manifest {
  explicit Manifest(const std::string& path) {
    std::ifstream file(path);
    const nlohmann::json json = nlohmann::json::parse(file);
    for (const auto& cache : json["caches"])
      caches[cache["past"]] = {cache["present"], cache["one_buffer"]};
    for (const auto& length : json.value("lengths", nlohmann::json::array()))
      lengths[length["input"]] = length["feed"];
  }

  std::map<std::string, Cache> caches;
  std::map<std::string, std::string> lengths;
};

class Decoder {
public:
  Decoder(Ort::Env& env, const std::string& path, const Ort::SessionOptions& options,
          const Manifest& manifest, bool isRewritten, Lengths lengths)
      : session(env, path.c_str(), options), binding(session) {
    for (size_t i = 0; i < session.GetInputCount(); ++i) {
      const std::string name = session.GetInputNames()[i];
      const Ort::TypeInfo info = session.GetInputTypeInfo(i);
      const auto type = info.GetTensorTypeAndShapeInfo();
      const auto cache = manifest.caches.find(name);
      if (cache != manifest.caches.end())
        bindCache(name, cache->second, type.GetShape(), isRewritten, lengths);
      else
        bindIntegers(name, type, manifest, lengths);
    }
    // Outputs are not the inputs of the next step: every step is the same one.
    for (const std::string& name : session.GetOutputNames())
      if (!isBound.count(name))
        binding.BindOutput(name.c_str(), Ort::AllocatorWithDefaultOptions().GetInfo());
  }

  /// Milliseconds of one step.
  double step() {
    const auto start = std::chrono::steady_clock::now();
    session.Run(Ort::RunOptions(), binding);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  }

  std::vector<float> logits() {
    const std::vector<std::string> names = binding.GetOutputNames();
    const auto values = binding.GetOutputValues();
    const auto place = std::find(names.begin(), names.end(), "logits") - names.begin();
    const Ort::Value& value = values.at(static_cast<size_t>(place));
    const auto* data = value.GetTensorData<float>();
    return {data, data + value.GetTensorTypeAndShapeInfo().GetElementCount()};
  }

private:
  /// Random rows, the same for both models. A buffer has room for one more.
  void bindCache(const std::string& name, const Cache& cache, Shape shape, bool isRewritten,
                 Lengths lengths) {
    const int64_t valid = cache.present.empty() ? lengths.rows : lengths.past;
    const bool isShared = isRewritten && cache.isShared;
    shape[0] = 1;
    shape[2] = valid + (isShared ? 1 : 0);
    Ort::AllocatorWithDefaultOptions allocator;
    Ort::Value& tensor = tensors.emplace_back(
        Ort::Value::CreateTensor<float>(allocator, shape.data(), shape.size()));
    auto* data = tensor.GetTensorMutableData<float>();
    std::minstd_rand random(static_cast<unsigned>(std::hash<std::string>()(name)));
    for (int64_t head = 0; head < shape[1]; ++head)
      for (int64_t row = 0; row < shape[2]; ++row)
        for (int64_t column = 0; column < shape[3]; ++column)
          *data++ = row < valid ? static_cast<float>(random() % 2001) / 1000 - 1 : 0;
    binding.BindInput(name.c_str(), tensor);
    if (isShared) {
      binding.BindOutput(cache.present.c_str(), tensor);
      isBound[cache.present] = true;
    }
  }

  /// Token 7, masks of ones, and lengths. The declared extents say what an input is for.
  void bindIntegers(const std::string& name, const Ort::ConstTensorTypeAndShapeInfo& type,
                    const Manifest& manifest, Lengths lengths) {
    Shape shape = type.GetShape();
    const std::vector<const char*> symbols = type.GetSymbolicDimensions();
    int64_t number = 7;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const std::string symbol = symbols[axis];
      if (shape[axis] >= 0)
        continue;
      shape[axis] = 1;
      if (axis == 0)
        continue;
      if (symbol.find("encoder") == 0)
        shape[axis] = lengths.rows;
      else if (symbol.find("total") == 0 || symbol.find("past") == 0)
        shape[axis] = lengths.past + 1;
      if (shape[axis] != 1)
        number = 1;
    }
    if (const auto length = manifest.lengths.find(name); length != manifest.lengths.end()) {
      number = length->second.find("total") == 0 ? lengths.past + 1 : lengths.past;
      if (length->second.find("minus_one") != std::string::npos)
        --number;
    } else if (name == "position_ids" || name == "cache_position") {
      number = lengths.past;
    }
    Ort::AllocatorWithDefaultOptions allocator;
    Ort::Value& tensor = tensors.emplace_back(
        Ort::Value::CreateTensor(allocator, shape.data(), shape.size(), type.GetElementType()));
    const size_t count = tensor.GetTensorTypeAndShapeInfo().GetElementCount();
    if (type.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32)
      std::fill_n(tensor.GetTensorMutableData<int32_t>(), count, static_cast<int32_t>(number));
    else if (type.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64)
      std::fill_n(tensor.GetTensorMutableData<int64_t>(), count, number);
    else
      throw std::runtime_error("the input '" + name + "' is neither a cache nor integers");
    binding.BindInput(name.c_str(), tensor);
  }

  Ort::Session session;
  Ort::IoBinding binding;
  std::vector<Ort::Value> tensors;
  std::map<std::string, bool> isBound; ///< outputs
};

void useLibrary(const std::string& library, Ort::Env& env, Ort::SessionOptions& options) {
  env.RegisterExecutionProviderLibrary("kvopt", library);
  std::vector<Ort::ConstEpDevice> devices;
  for (const Ort::ConstEpDevice& device : env.GetEpDevices())
    if (std::string(device.EpName()) == "kvopt")
      devices.push_back(device);
  options.AppendExecutionProvider_V2(env, devices, Ort::KeyValuePairs());
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

} // namespace

int main(int argc, char** argv) try {
  if (argc != 7 && argc != 8)
    throw std::runtime_error(
        "usage: encoder_decoders EXPORT REWRITTEN PAST ROWS STEPS THREADS [LIBRARY]");
  const std::string rewritten = argv[2];
  const Manifest manifest(rewritten.substr(0, rewritten.rfind('.')) + ".kv.json");
  const Lengths lengths{std::stoll(argv[3]), std::stoll(argv[4])};
  Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "encoder_decoders");
  Ort::SessionOptions plain;
  plain.SetIntraOpNumThreads(std::stoi(argv[6]));
  Ort::SessionOptions extended = plain.Clone();
  if (argc == 8)
    useLibrary(argv[7], env, extended);
  Decoder before(env, argv[1], plain, manifest, false, lengths);
  Decoder after(env, rewritten, extended, manifest, true, lengths);
  double largest = 0;
  std::vector<double> ofBefore, ofAfter, ratios;
  const int steps = std::stoi(argv[5]), warmUp = 3;
  for (int i = 0; i < steps + warmUp; ++i) {
    const double first = before.step(), second = after.step();
    if (i == 0) {
      const std::vector<float> wanted = before.logits(), got = after.logits();
      for (size_t at = 0; at < wanted.size(); ++at)
        largest = std::max(largest, std::fabs(double(wanted[at]) - double(got.at(at))));
    }
    if (i < warmUp)
      continue;
    ofBefore.push_back(first);
    ofAfter.push_back(second);
    ratios.push_back(first / second);
  }
  std::printf("%.3f %.4f %.4f %.1e\n", median(ratios),
              *std::min_element(ofBefore.begin(), ofBefore.end()),
              *std::min_element(ofAfter.begin(), ofAfter.end()), largest);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "encoder_decoders: %s\n", error.what());
  return 1;
}
