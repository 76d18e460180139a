// Writing genai_config.json.
#include "driver/rewrite/genai_config.h"

#include "driver/rewrite/genai_folder.h"
#include "ir/ops/kvopt/cache_operator.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <nlohmann/json.hpp>

namespace kvopt::driver {
using namespace ir;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* hint = "GenAI can run decoders of its own interface only";

/// Inputs that GenAI feeds to a decoder under names from its configuration.
constexpr const char* fedInputs[] = {"input_ids", "attention_mask", "position_ids"};

/// Names with the same role, layer by layer.
using LayerNames = std::vector<std::string>;

/// The template `past.%d.key` of past.0.key, past.1.key, …; nullopt if no number of the first name
/// is the layer's.
std::optional<std::string> templateOf(const LayerNames& names) {
  llvm::StringRef first = names.front();
  if (first.contains('%'))
    return std::nullopt;
  for (size_t at = first.find('0'); at != llvm::StringRef::npos; at = first.find('0', at + 1)) {
    const std::string before = first.take_front(at).str();
    const std::string after = first.drop_front(at + 1).str();
    bool fits = true;
    for (size_t layer = 0; fits && layer < names.size(); ++layer)
      fits = names[layer] == before + std::to_string(layer) + after;
    if (fits)
      return before + "%d" + after;
  }
  return std::nullopt;
}

/// Properties that the caches of all layers share.
struct Caches {
  LayerNames pastKeys, pastValues, presentKeys, presentValues;
  int64_t heads = 0;
  int64_t width = 0;
};

llvm::Error addCache(const ManifestCache& cache, Caches& caches) {
  auto misfit = [&](llvm::StringRef what) {
    return unsupported("cache '{}' {}", cache.past, what).hint(hint);
  };
  if (cache.update() == CacheUpdate::ReadOnly ||
      (cache.role != CacheRole::Key && cache.role != CacheRole::Value))
    return misfit("holds neither the keys nor the values of self-attention");
  if (cache.dtype == ElementType::Int8 || cache.dtype == ElementType::UInt8)
    return misfit("holds codes, which GenAI does not allocate on CPUs");
  if (!cache.isOneBuffer() || cache.layout() != CacheLayout::ofAttention())
    return misfit("is not one buffer with the sequence on axis 2");
  const auto* heads = std::get_if<int64_t>(&cache.shape[1]);
  const auto* width = std::get_if<int64_t>(&cache.shape[3]);
  if (!heads || !width)
    return misfit("has an open number of heads or width");
  if (caches.heads == 0) {
    caches.heads = *heads;
    caches.width = *width;
  }
  if (caches.heads != *heads || caches.width != *width)
    return misfit("has other heads than the first layer's");
  bool isKey = cache.role == CacheRole::Key;
  (isKey ? caches.pastKeys : caches.pastValues).push_back(cache.past);
  (isKey ? caches.presentKeys : caches.presentValues).push_back(cache.present);
  return llvm::Error::success();
}

llvm::Expected<Caches> cachesOf(const Manifest& manifest) {
  std::vector<const ManifestCache*> byLayer;
  for (const ManifestCache& cache : manifest.caches)
    byLayer.push_back(&cache);
  llvm::stable_sort(
      byLayer, [](const ManifestCache* a, const ManifestCache* b) { return a->layer < b->layer; });
  Caches caches;
  for (const ManifestCache* cache : byLayer)
    if (llvm::Error error = addCache(*cache, caches))
      return error;
  if (caches.pastKeys.empty() || caches.pastKeys.size() != caches.pastValues.size())
    return unsupported("the model has {} caches of keys and {} of values", caches.pastKeys.size(),
                       caches.pastValues.size())
        .hint(hint);
  return caches;
}

llvm::Error addTemplate(Json& names, const char* key, const LayerNames& layers) {
  std::optional<std::string> text = templateOf(layers);
  if (!text)
    return unsupported("'{}' and the other layers' names are not one name with the layer's number",
                       layers.front())
        .hint(hint);
  names[key] = *text;
  return llvm::Error::success();
}

llvm::Expected<Json> inputsOf(const Model& model, const Manifest& manifest, const Caches& caches) {
  llvm::StringSet<> own;
  for (const ManifestCache& cache : manifest.caches)
    own.insert(cache.past);
  Json inputs = Json::object();
  for (const auto& input : model.graph().inputs()) {
    std::string name = input->name().str();
    if (own.count(name) || input->initializer())
      continue;
    if (!llvm::is_contained(fedInputs, name))
      return unsupported("GenAI does not feed input '{}'", name)
          .hint("it feeds input_ids, attention_mask, position_ids and caches");
    inputs[name] = name;
  }
  if (llvm::Error error = addTemplate(inputs, "past_key_names", caches.pastKeys))
    return error;
  if (llvm::Error error = addTemplate(inputs, "past_value_names", caches.pastValues))
    return error;
  return inputs;
}

/// The scores of the next tokens: the only output that is not a cache, or the one called `logits`.
llvm::Expected<const Value*> logitsOf(const Model& model, const Manifest& manifest) {
  llvm::StringSet<> presents;
  for (const ManifestCache& cache : manifest.caches)
    presents.insert(cache.present);
  const Value* only = nullptr;
  unsigned others = 0;
  for (const Value* output : model.graph().outputs()) {
    if (presents.count(output->name()))
      continue;
    if (output->name() == "logits")
      return output;
    only = output;
    ++others;
  }
  if (others == 1)
    return only;
  return unsupported("none of {} outputs is called 'logits'", others).hint(hint);
}

int64_t queryHeads(const Node& node) {
  if (node.is("com.microsoft::GroupQueryAttention"))
    return node.intAttr("num_heads", 0);
  if (!CacheOperator::of(node))
    return 0;
  return node.operand(CacheOperator::query)->type().dim(1).value().value_or(0);
}

int64_t queryHeads(const Model& model) {
  int64_t heads = 0;
  for (const Node& node : model.graph().nodes())
    heads = std::max(heads, queryHeads(node));
  return heads;
}

} // namespace

llvm::Expected<std::string> genaiConfig(const Model& model, const Manifest& manifest,
                                        const std::string& fileName, bool replacesConfig,
                                        const std::string& operatorLibrary) {
  auto caches = cachesOf(manifest);
  if (!caches)
    return caches.takeError();
  auto inputs = inputsOf(model, manifest, *caches);
  if (!inputs)
    return inputs.takeError();
  auto logits = logitsOf(model, manifest);
  if (!logits)
    return logits.takeError();
  Json outputs = Json::object();
  outputs["logits"] = (*logits)->name().str();
  if (llvm::Error error = addTemplate(outputs, "present_key_names", caches->presentKeys))
    return error;
  if (llvm::Error error = addTemplate(outputs, "present_value_names", caches->presentValues))
    return error;
  Json decoder = Json::object();
  decoder["filename"] = fileName;
  if (manifest.operators && !operatorLibrary.empty())
    decoder["session_options"] = {{"custom_ops_library", operatorLibrary}};
  decoder["head_size"] = caches->width;
  decoder["inputs"] = std::move(*inputs);
  decoder["outputs"] = std::move(outputs);
  decoder["num_attention_heads"] = queryHeads(model);
  decoder["num_hidden_layers"] = caches->pastKeys.size();
  decoder["num_key_value_heads"] = caches->heads;
  Json root = Json::object();
  Json& described = root["model"] = Json::object();
  if (manifest.capacityValue)
    described["context_length"] = *manifest.capacityValue;
  described["decoder"] = std::move(decoder);
  const TensorType& scores = (*logits)->type();
  if (scores.hasRank() && scores.rank() > 0)
    if (auto vocabulary = scores.dim(-1).value())
      described["vocab_size"] = *vocabulary;
  Json& search = root["search"] = Json::object();
  if (manifest.capacityValue)
    search["max_length"] = *manifest.capacityValue;
  search["past_present_share_buffer"] = true;
  completeGenaiConfig(root, model.path, replacesConfig);
  return root.dump(2, ' ', false, Json::error_handler_t::replace);
}

} // namespace kvopt::driver
