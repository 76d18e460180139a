// The reference of manifests: the page and the schema are those of the tables, and the schema and
// the reader accept the same storage of caches.
#include "ir/manifest/manifest_reference.h"

#include "ir/manifest/manifest.h"
#include "support/diagnostic.h"
#include "tests/support/json_schema.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace kvopt {
using namespace ir;

namespace {

std::string textOfPage(const std::string& name) {
  std::ifstream stream(std::string(KVOPT_SOURCE_DIR) + "/docs/" + name, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

test::JsonSchema schema() { return test::JsonSchema(nlohmann::json::parse(manifestJsonSchema())); }

/// A manifest with one cache that grows, and one input of each kind.
nlohmann::json plainManifest() {
  return nlohmann::json::parse(R"({
    "schema": "kvopt/manifest/1", "target": "kvopt", "contract": "shared-buffer",
    "capacity": {"symbol": "capacity", "value": null},
    "caches": [{"layer": 0, "kind": "self", "role": "key", "past": "past", "present": "present",
                "one_buffer": false, "shape": ["batch", "capacity", 2, 16], "sequence_axis": 1,
                "dtype": "float32", "policy": "fixed", "window": 0}],
    "lengths": [{"input": "past_length", "dtype": "int64", "shape": [1], "feed": "past_length"}],
    "inputs": [{"input": "ids", "dtype": "int64", "shape": ["batch", "new"], "feed": "token_ids"}]
  })");
}

std::string refusalOf(const nlohmann::json& manifest) {
  auto read = parseManifest(manifest.dump());
  return read ? "" : takeDiagnostic(read.takeError()).str();
}

TEST(ManifestReference, IsThatOfThePage) {
  const std::string text = textOfPage("manifest.md"), tables = manifestMarkdown();
  EXPECT_TRUE(text.ends_with("\n\n" + tables))
      << "paste to the end of docs/manifest.md: kvopt list manifest --markdown";
  EXPECT_EQ(textOfPage("manifest.schema.json"), manifestJsonSchema())
      << "run: kvopt list manifest --schema > docs/manifest.schema.json";
}

TEST(ManifestReference, EveryKeyIsDescribed) {
  std::set<std::string> paths;
  for (const ManifestKey& key : manifestKeys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    const std::string sentence = key.field->sentence;
    EXPECT_TRUE(sentence.ends_with(".")) << key.path;
    EXPECT_LT(sentence.size(), 200u) << key.path;
    EXPECT_FALSE(typeText(*key.field, "").empty()) << key.path;
    if (key.field->words) {
      EXPECT_FALSE(key.field->words().empty()) << key.path;
    }
  }
  EXPECT_TRUE(paths.contains("caches[].part.first"));
  EXPECT_TRUE(paths.contains("tiles.attentions[].last_tile"));
}

TEST(ManifestReference, ADefaultIsWhatAMissingKeyMeans) {
  size_t checked = 0;
  const std::string without = llvm::cantFail(parseManifest(plainManifest().dump())).json();
  for (const ManifestKey& key : manifestKeys()) {
    if (!key.field->byDefault)
      continue;
    nlohmann::json with = plainManifest();
    const bool isOfCache = key.path.starts_with("caches[].");
    (isOfCache ? with["caches"][0] : with)[key.field->key] =
        nlohmann::json::parse(key.field->byDefault);
    if (std::string(key.field->key) == "inputs")
      continue; // the example has some
    auto read = parseManifest(with.dump());
    ASSERT_TRUE(static_cast<bool>(read)) << key.path << ": " << llvm::toString(read.takeError());
    EXPECT_EQ(read->json(), without) << key.path;
    EXPECT_EQ(schema().problem(with), "") << key.path;
    ++checked;
  }
  EXPECT_GT(checked, 5u);
}

TEST(ManifestReference, RequiredKeysAreRequiredByBoth) {
  EXPECT_EQ(refusalOf(plainManifest()), "");
  EXPECT_EQ(schema().problem(plainManifest()), "");
  for (const ManifestKey& key : manifestKeys()) {
    if (!key.field->isRequired())
      continue;
    nlohmann::json without = plainManifest();
    nlohmann::json* object = &without;
    for (const char* list : {"caches", "lengths", "inputs"})
      if (key.path.starts_with(std::string(list) + "[]."))
        object = &without[list][0];
    if (key.path.starts_with("capacity."))
      object = &without["capacity"];
    if (object->erase(key.field->key) == 0)
      continue; // of an object that the example does not have
    EXPECT_NE(refusalOf(without).find(std::string("has no '") + key.field->key), std::string::npos)
        << key.path << ": " << refusalOf(without);
    EXPECT_NE(schema().problem(without), "") << key.path;
  }
}

/// A manifest whose cache has these keys.
nlohmann::json withStorage(const char* kind, const char* policy, bool oneBuffer, const char* key) {
  nlohmann::json manifest = plainManifest();
  nlohmann::json& cache = manifest["caches"][0];
  cache["kind"] = kind;
  cache["policy"] = policy;
  cache["one_buffer"] = oneBuffer;
  if (key == std::string("present_rows"))
    cache[key] = "new";
  if (key == std::string("form")) {
    cache[key] = "pool";
    manifest["block_size"] = 16;
    manifest["capacity"]["value"] = 64;
    manifest["lengths"][0] = {
        {"input", "table"}, {"dtype", "int32"}, {"shape", {"batch", 4}}, {"feed", "block_table"}};
  }
  if (key == std::string("blocks"))
    cache[key] = {"block_0", "block_tail"};
  return manifest;
}

TEST(ManifestReference, ReaderAndSchemaAcceptTheSameStorage) {
  const std::vector<StorageSpelling> spellings = storageSpellings();
  size_t accepted = 0;
  for (const char* kind : {"self", "cross"})
    for (const char* policy : {"fixed", "ring", "block", "static", "state"})
      for (const bool oneBuffer : {false, true})
        for (const char* key : {"", "present_rows", "form", "blocks"}) {
          const nlohmann::json manifest = withStorage(kind, policy, oneBuffer, key);
          const bool isListed =
              std::any_of(spellings.begin(), spellings.end(), [&](const StorageSpelling& spelling) {
                const bool hasKey = spelling.key && spelling.key == std::string(key);
                return spelling.isOnlyRead == (kind == std::string("cross")) &&
                       (spelling.isOnlyRead || spelling.policy == std::string(policy)) &&
                       (oneBuffer ? spelling.mayBeOneBuffer : spelling.mayBeTwoTensors) &&
                       (hasKey || (*key == 0 && !spelling.needsKey));
              });
          accepted += isListed ? 1 : 0;
          EXPECT_EQ(refusalOf(manifest).empty(), isListed) << manifest << refusalOf(manifest);
          EXPECT_EQ(schema().problem(manifest).empty(), isListed)
              << manifest << schema().problem(manifest);
        }
  EXPECT_EQ(accepted, 16u);
}

TEST(ManifestReference, SchemaRefusesWrongValues) {
  const std::pair<const char*, nlohmann::json> wrong[] = {{"/contract", "shared"},
                                                          {"/schema", "kvopt/manifest/2"},
                                                          {"/capacity/value", "x"},
                                                          {"/block_size", 0},
                                                          {"/step_limit", 0},
                                                          {"/caches/0/layer", -1},
                                                          {"/caches/0/window", 1.5},
                                                          {"/caches/0/dtype", "float31"},
                                                          {"/caches/0/shape/0", ""},
                                                          {"/caches/0/one_buffer", 1},
                                                          {"/lengths/0/feed", "length"},
                                                          {"/lengths/0/input", ""},
                                                          {"/first_step", "../model.onnx"},
                                                          {"/first_step", ".."},
                                                          {"/padding", "left"},
                                                          {"/unpadded", "mask"}};
  for (const auto& [place, value] : wrong) {
    nlohmann::json manifest = plainManifest();
    manifest[nlohmann::json::json_pointer(place)] = value;
    EXPECT_NE(schema().problem(manifest), "") << place;
    EXPECT_NE(refusalOf(manifest), "") << place;
  }
  for (const char* file : {"model.onnx", "", ".hidden", "..data", "..."}) {
    nlohmann::json manifest = plainManifest();
    manifest["first_step"] = file;
    EXPECT_EQ(schema().problem(manifest), "") << file;
    EXPECT_EQ(refusalOf(manifest), "") << file;
  }
}

} // namespace
} // namespace kvopt
