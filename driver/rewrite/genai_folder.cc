// Files contribute only numbers, booleans, short texts and lists of token numbers.
#include "driver/rewrite/genai_folder.h"

#include "support/json.h"
#include "support/mapped_file.h"

#include <algorithm>

namespace kvopt::driver {
namespace {

constexpr size_t mostBytes = 256 << 20; // limit for one file

constexpr const char* configName = "config.json";
constexpr const char* generationName = "generation_config.json";

constexpr const char* tokenizerNames[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "added_tokens.json",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
    generationName,
    "sentencepiece.bpe.model",
};

constexpr const char* tokenKeys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

std::shared_ptr<const MappedFile> openIfThere(const std::string& modelPath,
                                              const std::string& name) {
  auto file = MappedFile::openBeneath(ConfinedFolder::of(modelPath), name);
  if (file && (*file)->bytes().size() <= mostBytes)
    return *file;
  if (!file)
    llvm::consumeError(file.takeError());
  return nullptr;
}

/// The JSON object in a file; empty if there is none.
OrderedJson objectIn(const std::string& modelPath, const std::string& name) {
  const std::shared_ptr<const MappedFile> file = openIfThere(modelPath, name);
  if (!file)
    return OrderedJson::object();
  const auto* first = reinterpret_cast<const char*>(file->bytes().data());
  OrderedJson json = OrderedJson::parse(first, first + file->bytes().size(), nullptr, false);
  return json.is_object() ? json : OrderedJson::object();
}

OrderedJson objectAt(const OrderedJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_object() ? *found : OrderedJson::object();
}

bool isTokens(const OrderedJson& json) {
  if (!json.is_array())
    return json.is_number_unsigned();
  return !json.empty() && std::all_of(json.begin(), json.end(), [](const OrderedJson& token) {
    return token.is_number_unsigned();
  });
}

bool isSetting(const OrderedJson& json) {
  return json.is_number() || json.is_boolean() ||
         (json.is_string() && json.get_ref<const std::string&>().size() < 256);
}

/// Copies `json[from]` to `target[key]`, if `isWanted` accepts it and `target` lacks it.
void take(OrderedJson& target, const char* key, const OrderedJson& json, const char* from,
          bool (*isWanted)(const OrderedJson&)) {
  const auto found = json.find(from);
  if (!target.contains(key) && found != json.end() && isWanted(*found))
    target[key] = *found;
}

} // namespace

std::vector<std::string> tokenizerFiles(const std::string& modelPath) {
  std::vector<std::string> names;
  for (const char* name : tokenizerNames)
    if (openIfThere(modelPath, name))
      names.emplace_back(name);
  return names;
}

llvm::Expected<std::string> tokenizerFile(const std::string& modelPath, const std::string& name) {
  auto file = MappedFile::openBeneath(ConfinedFolder::of(modelPath), name);
  if (!file)
    return file.takeError();
  return std::string(reinterpret_cast<const char*>((*file)->bytes().data()),
                     (*file)->bytes().size());
}

std::vector<std::string> genaiSources(const std::string& modelPath) {
  const ConfinedFolder folder = ConfinedFolder::of(modelPath);
  std::vector<std::string> paths = {folder.locate(configName), folder.locate(generationName)};
  for (const char* name : tokenizerNames)
    if (name != std::string_view(generationName))
      paths.push_back(folder.locate(name));
  return paths;
}

void completeGenaiConfig(OrderedJson& config, const std::string& modelPath, bool replacesConfig) {
  OrderedJson& model = config["model"];
  OrderedJson& search = config["search"];
  const OrderedJson before =
      replacesConfig ? OrderedJson::object() : objectIn(modelPath, "genai_config.json");
  const OrderedJson modelBefore = objectAt(before, "model");
  for (const char* key : {"type", "context_length", "vocab_size"})
    take(model, key, modelBefore, key, isSetting);
  const OrderedJson searchBefore = objectAt(before, "search");
  for (const auto& [key, value] : searchBefore.items())
    take(search, key.c_str(), searchBefore, key.c_str(), isSetting);
  const OrderedJson general = objectIn(modelPath, configName);
  const OrderedJson generation = objectIn(modelPath, generationName);
  for (const char* key : tokenKeys)
    for (const OrderedJson* source : {&modelBefore, &generation, &general})
      take(model, key, *source, key, isTokens);
  take(model, "type", general, "model_type", isSetting);
  take(model, "vocab_size", general, "vocab_size", isSetting);
  take(model, "context_length", general, "max_position_embeddings", isSetting);
  take(search, "max_length", model, "context_length", isSetting);
  // Models without a padding token are padded with the token that ends a text.
  if (model.contains("eos_token_id") && !model.contains("pad_token_id"))
    model["pad_token_id"] =
        model["eos_token_id"].is_array() ? model["eos_token_id"][0] : model["eos_token_id"];
}

} // namespace kvopt::driver
