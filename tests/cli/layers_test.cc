// Rewrites of some layers only: the manifest describes the caches of all layers.
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

namespace kvopt {
namespace {

/// A decoder, and the numbers of its layers that append to a cache.
struct Decoder {
  const char* name;
  std::vector<const char*> layers;
};

class LayersTest : public ::testing::TestWithParam<Decoder> {
protected:
  void SetUp() override {
    if (isShipped())
      return;
    model = folder.path("model.onnx");
    ASSERT_EQ(
        runProgram({"gen", GetParam().name, "--layers", "4", "--vocab", "64", "-o", model}).code,
        0);
  }

  static bool isShipped() {
    return std::string(GetParam().name).find("-eager") != std::string::npos;
  }

  /// Manifest of a rewrite with these options.
  nlohmann::json manifestOf(std::vector<std::string> options) {
    options.insert(options.begin(), {"rewrite", model, "-o", folder.path("written.onnx")});
    const ProgramResult result = runProgram(options);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(folder.read("written.kv.json"), nullptr, false);
  }

  TemporaryFolder folder;
  std::string model = shippedModel(GetParam().name);
};

/// What a manifest says of a cache apart from its storage.
nlohmann::json describedIn(const nlohmann::json& manifest) {
  nlohmann::json caches;
  for (const nlohmann::json& cache : manifest["caches"])
    for (const char* key : {"layer", "kind", "role", "present", "window", "readers", "rotation",
                            "sequence_axis", "dtype"})
      if (cache.contains(key))
        caches[cache["past"].get<std::string>()][key] = cache[key];
  return caches;
}

TEST_P(LayersTest, ManifestHasAllCaches) {
  for (const std::vector<std::string>& form :
       {std::vector<std::string>{"--to", "kvopt"}, {"--to", "ort"}}) {
    std::vector<std::string> options = form;
    options.insert(options.end(), {"--verify", "off"});
    const nlohmann::json whole = manifestOf(options);
    options.insert(options.end(), {"--layers", "0"});
    for (const char* layers : GetParam().layers) {
      options.back() = layers;
      const nlohmann::json partial = manifestOf(options);
      EXPECT_EQ(describedIn(partial), describedIn(whole)) << form.back() << ' ' << layers;
      EXPECT_EQ(partial.value("rotations", nlohmann::json()),
                whole.value("rotations", nlohmann::json()));
    }
  }
}

TEST_P(LayersTest, OthersAreDrivenAsBefore) {
  const nlohmann::json partial =
      manifestOf({"--layers", "0", "--to", "kvopt", "--verify", "quick"});
  size_t grown = 0;
  for (const nlohmann::json& cache : partial["caches"])
    grown += cache["layer"] != 0 && cache["kind"] == "self" && cache["one_buffer"] == false;
  EXPECT_GT(grown, 0u);
}

TEST(LayersRefusalTest, ChosenLayersNeedWork) {
  TemporaryFolder folder;
  const std::string model = folder.path("model.onnx");
  ASSERT_EQ(
      runProgram({"gen", "encoder-decoder", "--layers", "1", "--vocab", "64", "-o", model}).code,
      0);
  // Layer 1 reads an encoder's keys only. The other layer is not the reason.
  const ProgramResult result = runProgram(
      {"rewrite", model, "-o", folder.path("written.onnx"), "--to", "kvopt", "--layers", "1"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, testing::HasSubstr("L1 no-cache"));
  EXPECT_THAT(result.err, testing::Not(testing::HasSubstr("pattern-mismatch")));
}

INSTANTIATE_TEST_SUITE_P(Decoders, LayersTest,
                         testing::Values(Decoder{"llama", {"0", "1-2"}}, Decoder{"mha", {"3"}},
                                         Decoder{"window", {"0"}},
                                         Decoder{"encoder-decoder", {"0", "2"}},
                                         Decoder{"hybrid", {"0", "1"}},
                                         Decoder{"gpt2-dynamo18-eager", {"0", "1"}},
                                         Decoder{"llama_gqa-ts14-eager", {"1"}}),
                         [](const testing::TestParamInfo<Decoder>& decoder) {
                           std::string name = decoder.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace
} // namespace kvopt
