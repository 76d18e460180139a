// kvopt inspect on the models that ship with the project.
#include "tests/cli/cli_fixture.h"

#include <fstream>

namespace kvopt {
using namespace cli;

namespace {

struct Expectation {
  const char* model;
  unsigned sites;
  int queryHeads;
  int keyHeads;
  int width;
  const char* mask;
  double scale;
};

class InspectTest : public testing::TestWithParam<Expectation> {};

TEST_P(InspectTest, EverySiteIsMatchedWithItsFacts) {
  const Expectation& expected = GetParam();
  nlohmann::json json = runJson({"inspect", shippedModel(expected.model)});
  EXPECT_EQ(json["schema"], "kvopt/inspect/1");
  ASSERT_EQ(json["sites"].size(), expected.sites);
  for (const nlohmann::json& site : json["sites"]) {
    EXPECT_EQ(site["status"], "matched");
    EXPECT_EQ(site["kind"], "self");
    EXPECT_EQ(site["q_heads"], expected.queryHeads);
    EXPECT_EQ(site["kv_heads"], expected.keyHeads);
    EXPECT_EQ(site["k_head_dim"], expected.width);
    EXPECT_EQ(site["v_head_dim"], expected.width);
    EXPECT_EQ(site["key_axis"], 2);
    EXPECT_EQ(site["mask"], expected.mask);
    EXPECT_NEAR(site["scale"].get<double>(), expected.scale, 1e-7);
    std::string layer = std::to_string(site["layer"].get<int>());
    EXPECT_EQ(site["past_key"], "past_key_values." + layer + ".key");
    EXPECT_EQ(site["present_value"], "present." + layer + ".value");
  }
  EXPECT_EQ(json["targets"]["kvopt"]["can"], expected.sites);
  const bool isLearned = expected.model == std::string("gpt2-dynamo18-eager");
  EXPECT_EQ(json["context_shift"]["can"], !isLearned);
  EXPECT_EQ(json["context_shift"]["reason"],
            isLearned ? nlohmann::json("position-absolute") : nlohmann::json(nullptr));
  const std::string text = runProgram({"inspect", shippedModel(expected.model)}).out;
  EXPECT_NE(text.find(isLearned ? "context shift: no, position-absolute at 'node_add_13'"
                                : "context shift: yes"),
            std::string::npos)
      << text;
  // What recovery adds is not in the file.
  EXPECT_FALSE(json["opsets"].contains("ai.kvopt"));
  EXPECT_TRUE(json["opsets"].contains("ai.onnx"));
}

INSTANTIATE_TEST_SUITE_P(
    Shipped, InspectTest,
    testing::Values(Expectation{"kjv", 4, 4, 2, 32, "additive", 0.17677669},
                    Expectation{"llama_gqa-ts14-eager", 2, 4, 2, 16, "additive", 0.25},
                    Expectation{"gpt2-dynamo18-eager", 2, 4, 4, 16, "additive", 0.25},
                    Expectation{"qwen2-dynamo23-sdpa", 2, 4, 2, 16, "boolean", 0.25}),
    [](const auto& parameter) {
      std::string name = parameter.param.model;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(InspectCodes, NamesWhatCachesOfMissedAttentionHold) {
  TemporaryFolder folder;
  const std::string path = folder.path("codes.onnx");
  ProgramResult made = runProgram({"gen", "llama", "-o", path, "--spelling", "gqa", "--cache-codes",
                                   "int4", "--vocab", "64", "--kv-heads", "2"});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string text = runProgram({"inspect", path}).out;
  EXPECT_NE(text.find("other caches: 4 of uint8[batch_size, 2, past_sequence_length, 8], 64 B per "
                      "token"),
            std::string::npos)
      << text;
  nlohmann::json json = runJson({"inspect", path});
  ASSERT_EQ(json["other_caches"].size(), 1u);
  EXPECT_EQ(json["other_caches"][0]["count"], 4);
  EXPECT_EQ(json["other_caches"][0]["dtype"], "uint8");
  EXPECT_EQ(json["other_caches"][0]["bytes_per_token"], 64);
  EXPECT_EQ(json["sites"][0]["reason"], "dtype-mix");
  EXPECT_EQ(runJson({"inspect", shippedModel("kjv")})["other_caches"].size(), 0u);
}

TEST(InspectTable, SeveralModelsAreOneTableOfFixedColumns) {
  ProgramResult result =
      runProgram({"inspect", shippedModel("kjv"), shippedModel("gpt2-dynamo18-eager")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(countLines(result.out), 3u) << result.out;
  EXPECT_EQ(result.out.rfind("model ", 0), 0u) << result.out;
  EXPECT_NE(result.out.find("\nkjv  "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\ngpt2-dynamo18-eager  "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("4/2×32"), std::string::npos) << result.out;
  // A row does not depend on the others.
  ProgramResult other = runProgram(
      {"inspect", shippedModel("qwen2-dynamo23-sdpa"), shippedModel("gpt2-dynamo18-eager")});
  std::string row = result.out.substr(result.out.find("\ngpt2"));
  EXPECT_NE(other.out.find(row), std::string::npos) << other.out;
}

TEST(InspectTable, JsonHoldsEveryModel) {
  nlohmann::json json =
      runJson({"inspect", shippedModel("kjv"), shippedModel("gpt2-dynamo18-eager")});
  EXPECT_EQ(json["schema"], "kvopt/inspect/1");
  ASSERT_EQ(json["models"].size(), 2u);
  nlohmann::json alone = runJson({"inspect", shippedModel("kjv")});
  alone.erase("schema");
  EXPECT_EQ(json["models"][0], alone);
}

TEST(InspectTable, AnUnreadableFileIsARowAndExitsWithThree) {
  TemporaryFolder folder;
  std::string missing = folder.path("missing.onnx");
  std::vector<std::string> arguments{"inspect", missing, shippedModel("kjv")};
  ProgramResult result = runProgram(arguments);
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(countLines(result.out), 3u) << result.out;
  EXPECT_NE(result.out.find("unreadable"), std::string::npos) << result.out;
  EXPECT_EQ(countLines(result.err), 1u) << result.err;
  EXPECT_NE(result.err.find(missing), std::string::npos) << result.err;
  nlohmann::json json = runJson(arguments, 3);
  EXPECT_NE(json["models"][0]["error"], "");
  EXPECT_EQ(json["models"][1]["sites"].size(), 4u);
}

} // namespace
} // namespace kvopt
