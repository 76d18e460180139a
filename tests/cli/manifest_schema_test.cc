// Manifests of every preset are valid against the JSON Schema that the program prints.
#include "tests/cli/cli_fixture.h"
#include "tests/support/json_schema.h"

#include <set>

namespace kvopt {
namespace {

class ManifestSchemaTest : public testing::Test {
protected:
  ManifestSchemaTest()
      : schema(nlohmann::json::parse(runProgram({"list", "manifest", "--schema"}).out)) {
    models = {shippedModel("gpt2-dynamo18-eager")};
    for (const std::vector<std::string>& kind :
         {std::vector<std::string>{"window", "--window", "8"},
          {"mla"},
          {"encoder-decoder"},
          {"hybrid"},
          {"llama"},
          {"llama", "--cache", "static", "--max-positions", "64"},
          {"llama", "--dtype", "float16", "--kv-heads", "2", "--head-dim", "32"}})
      generate(kind);
  }

  void generate(std::vector<std::string> arguments) {
    models.push_back(folder.path() + "/m" + std::to_string(models.size()) + ".onnx");
    arguments.insert(arguments.begin(), "gen");
    arguments.insert(arguments.end(), {"-o", models.back(), "--vocab", "32", "--layers",
                                       arguments[1] == "hybrid" ? "2" : "1"});
    const ProgramResult result = runProgram(arguments);
    ASSERT_EQ(result.code, 0) << result.err;
  }

  /// The manifest of the model in the preset's form; null where the preset does not take it.
  nlohmann::json manifestOf(const std::string& model, const std::string& preset) {
    const std::string out = folder.path() + "/out.onnx";
    std::vector<std::string> arguments{"rewrite", model,      "-o",  out,         "--to",
                                       preset,    "--verify", "off", "--require", "any"};
    for (const char* blocks : {"blocks", "pyramid", "tiles"})
      if (preset.find(blocks) != std::string::npos)
        arguments.insert(arguments.end(), {"--capacity", "40"});
    if (runProgram(arguments).code != 0)
      return nullptr;
    return nlohmann::json::parse(folder.read("out.kv.json"));
  }

  TemporaryFolder folder;
  test::JsonSchema schema;
  std::vector<std::string> models;
};

TEST_F(ManifestSchemaTest, EveryPresetWritesValidManifests) {
  std::set<std::string> keys;
  const nlohmann::json targets = runJson({"list", "targets"});
  for (const nlohmann::json& target : targets["targets"]) {
    std::string preset = target["name"];
    if (preset == "tiles" || preset == "pyramid" || preset.ends_with("blocks"))
      preset += ":16";
    size_t written = 0;
    for (const std::string& model : models) {
      const nlohmann::json manifest = manifestOf(model, preset);
      if (manifest.is_null())
        continue;
      ++written;
      EXPECT_EQ(schema.problem(manifest), "") << preset << " of " << model << "\n" << manifest;
      for (const auto& [key, value] : manifest.items())
        keys.insert(key);
    }
    EXPECT_GT(written, 0u) << preset;
  }
  for (const char* key : {"block_size", "variants", "tiles", "rotations"})
    EXPECT_TRUE(keys.contains(key)) << key;
}

TEST(ManifestSchema, IsPrintedAlone) {
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"list", "manifest", "--schema", "--markdown"},
        {"list", "manifest", "--schema", "--format", "json"},
        {"list", "reasons", "--schema"}})
    EXPECT_EQ(runProgram(wrong).code, 2) << wrong.back();
  EXPECT_NE(runProgram({"list", "manifest", "--markdown"}).out.find("### cache\n"),
            std::string::npos);
}

} // namespace
} // namespace kvopt
