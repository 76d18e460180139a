// Decodes greedily in ONNX Runtime with a model that `kvopt rewrite` wrote. Each cache is one
// buffer, which is bound as its past and as its present: a step writes the new rows and copies
// nothing.
//
//   g++ -std=c++17 ort_decode.cc -I/usr/include/onnxruntime -lonnxruntime -o ort_decode
//   ./ort_decode MODEL.onnx 1,2,3 8 [--first MODEL.onnx]… [--input NAME=1,80,3000:FILE]…
//
// The second argument is the prompt, the third the number of tokens to generate. Decoders of speech
// and translation also read what an encoder computed. --first names a model that runs once before
// the first token, for example encoder.onnx; --input gives a float32 tensor: its name, its extents
// and the file with its elements.
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

using Shape = std::vector<int64_t>;
using Tensors = std::map<std::string, Ort::Value>;

static Shape numbers(const std::string& text) {
  Shape result;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');)
    result.push_back(std::stoll(word));
  return result;
}

/// A float32 tensor of zeros in memory of its own.
static Ort::Value zeros(const Shape& shape) {
  Ort::AllocatorWithDefaultOptions allocator;
  Ort::Value tensor = Ort::Value::CreateTensor<float>(allocator, shape.data(), shape.size());
  std::fill_n(tensor.GetTensorMutableData<float>(),
              tensor.GetTensorTypeAndShapeInfo().GetElementCount(), 0);
  return tensor;
}

/// Integers in the type that an input has: int64, int32 or bool.
static Ort::Value integers(const Shape& shape, ONNXTensorElementDataType type,
                           const Shape& values) {
  Ort::AllocatorWithDefaultOptions allocator;
  Ort::Value tensor = Ort::Value::CreateTensor(allocator, shape.data(), shape.size(), type);
  if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64)
    std::copy(values.begin(), values.end(), tensor.GetTensorMutableData<int64_t>());
  else if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32)
    std::copy(values.begin(), values.end(), tensor.GetTensorMutableData<int32_t>());
  else
    std::copy(values.begin(), values.end(), tensor.GetTensorMutableData<bool>());
  return tensor;
}

/// Adds the outputs of a model that runs once, under the names that a decoder's inputs have.
static void runOnce(Ort::Env& env, const std::string& path, Tensors& tensors) {
  Ort::AllocatorWithDefaultOptions allocator;
  Ort::Session session(env, path.c_str(), Ort::SessionOptions());
  Ort::IoBinding binding(session);
  for (const std::string& name : session.GetInputNames())
    binding.BindInput(name.c_str(), tensors.at(name));
  for (const std::string& name : session.GetOutputNames())
    binding.BindOutput(name.c_str(), allocator.GetInfo());
  session.Run(Ort::RunOptions(), binding);
  std::vector<Ort::Value> outputs = binding.GetOutputValues();
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::string name = session.GetOutputNames()[i];
    if (name == "last_hidden_state")
      name = "encoder_hidden_states";
    else if (name.rfind("present", 0) == 0)
      name.replace(0, 7, "past_key_values");
    tensors.insert_or_assign(name, std::move(outputs[i]));
  }
}

class Decoder {
public:
  Decoder(Ort::Env& env, const std::string& path, int64_t capacity, Tensors given)
      : tensors(std::move(given)) {
    const std::string stem = path.substr(0, path.size() - 5); // without ".onnx"
    manifest = nlohmann::json::parse(std::ifstream(stem + ".kv.json"));
    if (manifest.contains("first_step"))
      runOnce(env, path.substr(0, path.rfind('/') + 1) + manifest["first_step"].get<std::string>(),
              tensors);
    session = Ort::Session(env, path.c_str(), Ort::SessionOptions());
    binding = Ort::IoBinding(session);
    outputs = session.GetOutputNames();
    if (!manifest["capacity"]["value"].is_null())
      capacity = manifest["capacity"]["value"];
    for (const auto& cache : manifest["caches"])
      if (cache["kind"] != "cross")
        bindCache(cache, capacity);
  }

  /// Feeds new tokens, in several steps if the model limits them, and returns the next one.
  int64_t feed(const Shape& tokens) {
    if (*std::min_element(tokens.begin(), tokens.end()) < 0)
      throw std::runtime_error("a token is negative");
    const size_t limit = manifest.value("step_limit", tokens.size());
    int64_t next = 0;
    for (size_t first = 0; first < tokens.size(); first += limit)
      next =
          step({tokens.begin() + first, tokens.begin() + std::min(first + limit, tokens.size())});
    return next;
  }

private:
  int64_t step(const Shape& tokens) {
    const int64_t count = tokens.size(), total = past + count;
    Shape positions(count);
    std::iota(positions.begin(), positions.end(), past);
    std::map<std::string, int64_t> lengths = {{"past_length", past},
                                              {"total_length", total},
                                              {"new_length", count},
                                              {"has_past", past > 0},
                                              {"no_past", past == 0}};
    std::vector<Ort::Value> kept; // until the run has ended
    for (size_t i = 0; i < session.GetInputCount(); ++i) {
      const std::string name = session.GetInputNames()[i];
      const auto type = session.GetInputTypeInfo(i).GetTensorTypeAndShapeInfo().GetElementType();
      if (bound.count(name))
        continue;
      if (auto given = tensors.find(name); given != tensors.end()) {
        binding.BindInput(name.c_str(), given->second);
        continue;
      }
      const std::string feed = feedOf(name);
      if (feed == "visible_keys[\"batch\",\"total\"]")
        kept.push_back(integers({1, total}, type, Shape(total, 1)));
      else if (feed == "position_ids[\"batch\",\"new\"]")
        kept.push_back(integers({1, count}, type, positions));
      else if (feed == "position_ids[\"new\"]")
        kept.push_back(integers({count}, type, positions));
      else if (feed == "token_ids[\"batch\",\"new\"]")
        kept.push_back(integers({1, count}, type, tokens));
      else
        kept.push_back(lengthTensor(name, type, lengths));
      binding.BindInput(name.c_str(), kept.back());
    }
    Ort::AllocatorWithDefaultOptions allocator;
    for (const std::string& name : outputs) // again in each step, for the extents change
      binding.BindOutput(name.c_str(), allocator.GetInfo());
    session.Run(Ort::RunOptions(), binding);
    past = total;
    // Outputs come in the order in which they were bound: caches first.
    const auto values = binding.GetOutputValues();
    const auto logits = std::find(outputs.begin(), outputs.end(), "logits");
    return best(values[values.size() - outputs.size() +
                       (logits == outputs.end() ? 0 : logits - outputs.begin())]);
  }

  void bindCache(const nlohmann::json& cache, int64_t capacity) {
    if (!cache["one_buffer"] || cache["dtype"] != "float32")
      throw std::runtime_error(
          "this example takes float32 caches in one buffer, as --to ort writes them");
    Shape shape;
    for (const auto& extent : cache["shape"])
      shape.push_back(extent.is_string() ? 1 : extent.get<int64_t>());
    const size_t axis = cache["sequence_axis"];
    if (cache["shape"][axis].is_string()) // rings have rows of their own
      shape[axis] = capacity;
    buffers.push_back(zeros(shape));
    const std::string past = cache["past"], present = cache["present"];
    binding.BindInput(past.c_str(), buffers.back());
    binding.BindOutput(present.c_str(), buffers.back());
    bound.insert(past);
    outputs.erase(std::find(outputs.begin(), outputs.end(), present));
  }

  /// The feed of an input, with its extents: as the manifest describes it, or as its name says.
  std::string feedOf(const std::string& name) const {
    for (const auto& entry : manifest.value("inputs", nlohmann::json::array()))
      if (entry["input"] == name)
        return entry["feed"].get<std::string>() + entry["shape"].dump();
    if (name == "attention_mask")
      return R"(visible_keys["batch","total"])";
    if (name == "cache_position")
      return R"(position_ids["new"])";
    if (name == "position_ids")
      return R"(position_ids["batch","new"])";
    const bool isToken = name == "input_ids" || name == "decoder_input_ids";
    return isToken ? R"(token_ids["batch","new"])" : "";
  }

  Ort::Value lengthTensor(const std::string& name, ONNXTensorElementDataType type,
                          const std::map<std::string, int64_t>& lengths) const {
    for (const auto& length : manifest["lengths"]) {
      if (length["input"] != name)
        continue;
      std::string feed = length["feed"];
      const bool isLess = feed.find("_minus_one") != std::string::npos;
      for (const char* suffix : {"_minus_one", "_per_batch"})
        if (const size_t at = feed.find(suffix); at != std::string::npos)
          feed.erase(at, 10);
      return integers(Shape(length["shape"].size(), 1), type, {lengths.at(feed) - isLess});
    }
    throw std::runtime_error("input '" + name + "' must be given");
  }

  static int64_t best(const Ort::Value& scores) {
    const Shape shape = scores.GetTensorTypeAndShapeInfo().GetShape();
    const float* last = scores.GetTensorData<float>() + (shape[1] - 1) * shape[2];
    return std::max_element(last, last + shape[2]) - last;
  }

  nlohmann::json manifest;
  Ort::Session session{nullptr};
  Ort::IoBinding binding{nullptr};
  Tensors tensors;
  std::vector<Ort::Value> buffers;
  std::set<std::string> bound;
  std::vector<std::string> outputs;
  int64_t past = 0;
};

int main(int argc, char** argv) try {
  if (argc < 4 || argc % 2 != 0)
    throw std::runtime_error(
        "usage: ort_decode MODEL.onnx 1,2,3 COUNT [--first MODEL] [--input NAME=EXTENTS:FILE]");
  Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "decode");
  Tensors tensors;
  for (int i = 4; i < argc; i += 2) {
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "--first") {
      runOnce(env, value, tensors);
      continue;
    }
    const size_t equals = value.find('='), colon = value.find(':', equals);
    Ort::Value tensor = zeros(numbers(value.substr(equals + 1, colon - equals - 1)));
    std::ifstream(value.substr(colon + 1), std::ios::binary)
        .read(tensor.GetTensorMutableData<char>(),
              tensor.GetTensorTypeAndShapeInfo().GetElementCount() * 4);
    tensors.insert_or_assign(value.substr(0, equals), std::move(tensor));
  }
  Shape tokens = numbers(argv[2]);
  const int count = std::stoi(argv[3]);
  Decoder decoder(env, argv[1], tokens.size() + count, std::move(tensors));
  for (int made = 0; made < count; ++made) {
    tokens = {decoder.feed(tokens)};
    std::printf("%s%lld", made == 0 ? "" : ",", static_cast<long long>(tokens[0]));
  }
  std::printf("\n");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "ort_decode: %s\n", error.what());
  return 1;
}
