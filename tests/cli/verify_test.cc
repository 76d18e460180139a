// kvopt verify: reports and exit codes.
#include "tests/cli/cli_fixture.h"

namespace kvopt {
namespace {

const std::string llama = "llama_gqa-ts14-eager";

std::string reference(const std::string& model, const std::string& name) {
  return std::string(KVOPT_SOURCE_DIR) + "/models/" + model + "/ref/" + name;
}

TEST(VerifyTest, JsonOfTwoEqualModels) {
  TemporaryFolder folder;
  ASSERT_EQ(
      runProgram({"rewrite", shippedModel(llama), "-o", folder.path("f.onnx"), "--to", "kvopt"})
          .code,
      0);
  ProgramResult result =
      runProgram({"verify", shippedModel(llama), folder.path("f.onnx"), "--prompt", "5", "--chunks",
                  "3,1", "--steps", "2", "--pad", "right", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  auto json = nlohmann::ordered_json::parse(result.out);
  EXPECT_EQ(json.begin().key(), "schema");
  EXPECT_EQ(json["schema"], "kvopt/verify/1");
  EXPECT_EQ(json["equal"], true);
  EXPECT_EQ(json["tokens_equal"], true);
  std::vector<std::string> phases;
  for (const auto& step : json["steps"]) {
    phases.push_back(step["phase"]);
    EXPECT_EQ(step["caches"].size(), 4u);
    for (const char* key : {"max_abs", "max_ulp", "bit_exact"})
      EXPECT_TRUE(step["outputs"]["logits"].contains(key)) << key;
  }
  EXPECT_EQ(phases, (std::vector<std::string>{"prefill", "chunk", "chunk", "decode", "decode"}));
  EXPECT_TRUE(json["worst"].contains("max_abs"));
}

TEST(VerifyTest, ReferencesAgreeAndTooTightAToleranceDoesNot) {
  EXPECT_EQ(
      runProgram({"verify", shippedModel(llama), "--reference", reference(llama, "b2pad")}).code,
      0);
  ProgramResult tight = runProgram(
      {"verify", shippedModel(llama), "--reference", reference(llama, "b1"), "--atol", "0"});
  EXPECT_EQ(tight.code, 1);
  EXPECT_NE(tight.out.find("DIFFERENT"), std::string::npos);
}

TEST(VerifyTest, OtherModelsAreDifferentOrNotComparable) {
  ProgramResult other =
      runProgram({"verify", shippedModel(llama), shippedModel("qwen2-dynamo23-sdpa"), "--prompt",
                  "4", "--steps", "1"});
  EXPECT_EQ(other.code, 1) << other.err;
  ProgramResult wrong = runProgram(
      {"verify", shippedModel("qwen2-dynamo23-sdpa"), "--reference", reference(llama, "b1")});
  EXPECT_EQ(wrong.code, 1) << wrong.err;
}

TEST(VerifyTest, UsageAndMissingFolders) {
  EXPECT_EQ(runProgram({"verify", shippedModel(llama)}).code, 2);
  EXPECT_EQ(
      runProgram({"verify", shippedModel(llama), shippedModel(llama), "--reference", "x"}).code, 2);
  ProgramResult missing =
      runProgram({"verify", shippedModel(llama), "--reference", "/nonexistent/folder"});
  EXPECT_EQ(missing.code, 3);
  EXPECT_NE(missing.err.find("/nonexistent/folder"), std::string::npos);
}

} // namespace
} // namespace kvopt
