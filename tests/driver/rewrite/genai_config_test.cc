// genai_config.json: what it says, and models that GenAI cannot run.
#include "driver/rewrite/genai_config.h"

#include "driver/rewrite/genai_folder.h"
#include "ir/op.h"
#include "ir/text/reader.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

using testing::HasSubstr;

/// Two layers of caches that nothing reads: only names and types matter here.
class GenaiConfig : public testing::Test {
protected:
  GenaiConfig() {
    registerAll(ops);
    for (int64_t layer : {0, 1})
      for (CacheRole role : {CacheRole::Key, CacheRole::Value}) {
        const std::string word = role == CacheRole::Key ? "key" : "value";
        ManifestCache cache;
        cache.layer = layer;
        cache.role = role;
        cache.past = "past_key_values." + std::to_string(layer) + "." + word;
        cache.present = "present." + std::to_string(layer) + "." + word;
        cache.storage = BufferCache();
        cache.shape = {std::string("batch"), int64_t{2}, std::string("capacity"), int64_t{16}};
        manifest.caches.push_back(cache);
      }
  }

  std::string text(const std::string& inputs, const std::string& outputs) const {
    auto model = readText("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                          "decoder (int64[B, S] input_ids" +
                              inputs + ") => (float[B, S, 9] " + outputs +
                              ")\n{\n  x = Cast <to = 1> (input_ids)\n"
                              "  logits = Identity (x)\n  other = Identity (x)\n}",
                          ops);
    if (!model)
      return llvm::toString(model.takeError());
    auto config = genaiConfig(**model, manifest, "model.onnx");
    return config ? *config : takeDiagnostic(config.takeError()).str();
  }

  OpRegistry ops;
  Manifest manifest;
};

TEST_F(GenaiConfig, SaysWhatTheModelDecides) {
  manifest.capacityValue = 128;
  auto json = nlohmann::json::parse(text(", int64[B, T] attention_mask", "logits"));
  const auto& decoder = json["model"]["decoder"];
  EXPECT_EQ(json["model"]["context_length"], 128);
  EXPECT_EQ(json["model"]["vocab_size"], 9);
  EXPECT_EQ(decoder["filename"], "model.onnx");
  EXPECT_EQ(decoder["num_hidden_layers"], 2);
  EXPECT_EQ(decoder["num_key_value_heads"], 2);
  EXPECT_EQ(decoder["head_size"], 16);
  EXPECT_EQ(decoder["inputs"],
            nlohmann::json::parse(R"({"input_ids": "input_ids", "attention_mask": "attention_mask",
              "past_key_names": "past_key_values.%d.key",
              "past_value_names": "past_key_values.%d.value"})"));
  EXPECT_EQ(decoder["outputs"]["present_value_names"], "present.%d.value");
  EXPECT_EQ(json["search"]["past_present_share_buffer"], true);
  EXPECT_EQ(json["search"]["max_length"], 128);
}

TEST_F(GenaiConfig, NamesTheLibraryOfOperatorsThatTheModelUses) {
  const auto sessionOptions = [&](const std::string& library) {
    auto model = readText("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                          "decoder (int64[B, S] input_ids) => (float[B, S, 9] logits)\n"
                          "{\n  x = Cast <to = 1> (input_ids)\n  logits = Identity (x)\n}",
                          ops);
    const auto config = llvm::cantFail(
        genaiConfig(*llvm::cantFail(std::move(model)), manifest, "m.onnx", false, library));
    return nlohmann::json::parse(config)["model"]["decoder"].value("session_options",
                                                                   nlohmann::json());
  };
  EXPECT_EQ(sessionOptions("/lib/operators.so"), nlohmann::json());
  manifest.operators = ManifestOperators{"ai.kvopt", 1, {"InPlaceKvSdpa"}};
  EXPECT_EQ(sessionOptions("/lib/operators.so"),
            nlohmann::json({{"custom_ops_library", "/lib/operators.so"}}));
  EXPECT_EQ(sessionOptions(""), nlohmann::json());
}

TEST_F(GenaiConfig, FindsTheLayersNumberAmongOthers) {
  for (ManifestCache& cache : manifest.caches)
    cache.past = "v0_" + cache.past + "_0";
  auto json = nlohmann::json::parse(text("", "logits"));
  EXPECT_EQ(json["model"]["decoder"]["inputs"]["past_key_names"], "v0_past_key_values.%d.key_0");
}

TEST_F(GenaiConfig, TheOnlyOtherOutputIsTheScores) {
  auto json = nlohmann::json::parse(text("", "other"));
  EXPECT_EQ(json["model"]["decoder"]["outputs"]["logits"], "other");
}

TEST_F(GenaiConfig, RefusesWhatGenaiDoesNotFeed) {
  EXPECT_THAT(text(", int64[S] cache_position", "logits"), HasSubstr("'cache_position'"));
  manifest.caches[2].past = "past.other";
  EXPECT_THAT(text("", "logits"), HasSubstr("are not one name with the layer's number"));
}

TEST_F(GenaiConfig, RefusesCachesOfOtherForms) {
  manifest.caches[3].shape[3] = int64_t{24};
  EXPECT_THAT(text("", "logits"), HasSubstr("has other heads than the first layer's"));
  manifest.caches[3].shape[3] = int64_t{16};
  manifest.caches[3].storage = ReadOnlyCache();
  EXPECT_THAT(text("", "logits"), HasSubstr("neither the keys nor the values of self-attention"));
  manifest.caches.pop_back();
  EXPECT_THAT(text("", "logits"), HasSubstr("2 caches of keys and 1 of values"));
  manifest.caches.clear();
  EXPECT_THAT(text("", "logits"), HasSubstr("0 caches of keys"));
}

/// A folder with an export's files.
class GenaiFolder : public testing::Test {
protected:
  GenaiFolder() { std::filesystem::create_directories(folder); }
  ~GenaiFolder() override { std::filesystem::remove_all(folder); }

  void write(const char* name, const char* text) const { std::ofstream(folder / name) << text; }
  std::string model() const { return (folder / "model.onnx").string(); }
  OrderedJson completed(const char* config = R"({"model": {"vocab_size": 9}, "search": {}})",
                        bool replacesConfig = false) const {
    OrderedJson json = OrderedJson::parse(config);
    completeGenaiConfig(json, model(), replacesConfig);
    return json;
  }

  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / formatted("genai_folder_{}", ::getpid());
};

TEST_F(GenaiFolder, TakesFactsFromAnExport) {
  write("config.json", R"({"model_type": "llama", "bos_token_id": 1, "eos_token_id": 2,
                          "max_position_embeddings": 4096, "vocab_size": 32000})");
  write("generation_config.json", R"({"eos_token_id": [7, 8]})");
  EXPECT_EQ(completed(), OrderedJson::parse(R"({
    "model": {"vocab_size": 9, "bos_token_id": 1, "eos_token_id": [7, 8], "type": "llama",
              "context_length": 4096, "pad_token_id": 7},
    "search": {"max_length": 4096}})"));
  // What is known of the model stays.
  EXPECT_EQ(completed(R"({"model": {"context_length": 64}, "search": {}})")["search"]["max_length"],
            64);
}

TEST_F(GenaiFolder, PrefersTheConfigurationOfGenai) {
  write("config.json", R"({"model_type": "llama", "pad_token_id": 3})");
  write("genai_config.json", R"({"model": {"type": "phi3", "pad_token_id": 4,
    "decoder": {"sliding_window": {"window_size": 8}}}, "search": {"top_k": 5, "odd": {"a": 1}}})");
  EXPECT_EQ(completed(), OrderedJson::parse(R"({
    "model": {"vocab_size": 9, "type": "phi3", "pad_token_id": 4}, "search": {"top_k": 5}})"));
}

TEST_F(GenaiFolder, IgnoresAConfigurationThatIsReplaced) {
  write("config.json", R"({"model_type": "llama"})");
  write("genai_config.json", R"({"model": {"type": "phi3"}})");
  EXPECT_EQ(completed(R"({"model": {}, "search": {}})", true)["model"]["type"], "llama");
}

TEST_F(GenaiFolder, TakesNothingFromOtherFiles) {
  const OrderedJson nothing = OrderedJson::parse(R"({"model": {"vocab_size": 9}, "search": {}})");
  EXPECT_EQ(completed(), nothing);
  write("config.json", R"([{"model_type": "llama"}])");
  write("generation_config.json", "{");
  EXPECT_EQ(completed(), nothing);
  write("config.json", R"({"model_type": {"a": 1}, "bos_token_id": -1, "eos_token_id": ["a"]})");
  EXPECT_EQ(completed(), nothing);
}

TEST_F(GenaiFolder, FindsTheTokenizer) {
  EXPECT_TRUE(tokenizerFiles(model()).empty());
  write("tokenizer.json", "{}");
  write("merges.txt", "a b");
  write("notes.txt", "");
  std::filesystem::create_symlink("/etc/hostname", folder / "vocab.json");
  EXPECT_EQ(tokenizerFiles(model()), (std::vector<std::string>{"tokenizer.json", "merges.txt"}));
  EXPECT_EQ(llvm::cantFail(tokenizerFile(model(), "merges.txt")), "a b");
}

} // namespace
} // namespace kvopt
