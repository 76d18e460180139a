// kvopt verify: reports and exit codes.
#include "tests/cli/cli_fixture.h"

#include <filesystem>
#include <fstream>

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

TEST(VerifyTest, EveryCaseOfSeveralModelsInOneTable) {
  const std::vector<std::string> models = {shippedModel(llama),
                                           shippedModel("gpt2-dynamo18-eager")};
  ProgramResult text = runProgram({"verify", models[0], models[1], "--references"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find(" equal\n"), std::string::npos) << text.out;
  auto json = runJson({"verify", models[0], models[1], "--references"});
  EXPECT_EQ(json["schema"], "kvopt/verify-references/1");
  EXPECT_EQ(json["equal"], true);
  size_t forms = 0;
  for (const auto& entry : json["cases"]) {
    EXPECT_EQ(entry["compared_to"], "recorded");
    EXPECT_EQ(entry["tolerance"], 1e-4);
    EXPECT_EQ(entry["forms"].size(), 3u);
    for (const auto& form : entry["forms"]) {
      EXPECT_EQ(form["verdict"], "equal");
      EXPECT_GT(form["max_abs"].get<double>(), 0);
      ++forms;
    }
  }
  EXPECT_GE(json["cases"].size(), 4u);
  EXPECT_EQ(json["counts"]["equal"], forms);
  auto one = runJson({"verify", models[0], "--references", "--forms", "stateful"});
  EXPECT_EQ(one["cases"][0]["forms"].size(), 1u);
  EXPECT_TRUE(one["cases"][0]["forms"].contains("stateful"));
}

TEST(VerifyTest, ReferencesOfAnotherModelAreDifferentUnlessTheFactsSaySo) {
  TemporaryFolder folder;
  namespace fs = std::filesystem;
  const fs::path other = fs::path(shippedModel("qwen2-dynamo23-sdpa"));
  fs::create_directories(folder.path("m/ref"));
  fs::copy(other, folder.path("m/model.onnx"));
  fs::copy(reference(llama, "b1"), folder.path("m/ref/b1"), fs::copy_options::recursive);
  auto different = runJson({"verify", folder.path("m/model.onnx"), "--references"}, 1);
  EXPECT_EQ(different["equal"], false);
  EXPECT_EQ(different["counts"]["different"], 3);
  std::ofstream(folder.path("m/model.json"))
      << R"({"status": "structure only: no engine runs it"})";
  auto structure = runJson({"verify", folder.path("m/model.onnx"), "--references"});
  EXPECT_EQ(structure["cases"][0]["compared_to"], "exported model");
  EXPECT_EQ(structure["cases"][0]["forms"]["exported"]["verdict"], "not-compared");
  EXPECT_EQ(structure["counts"]["equal"], 2);
  // With nothing to compare there is no agreement.
  fs::remove_all(folder.path("m/ref"));
  EXPECT_EQ(runJson({"verify", folder.path("m/model.onnx"), "--references"}, 1)["counts"]["equal"],
            0);
  EXPECT_EQ(runProgram({"verify", folder.path("absent.onnx"), "--references"}).code, 3);
  EXPECT_EQ(runProgram({"verify", shippedModel(llama), "--references", "--forms", "odd"}).code, 2);
}

} // namespace
} // namespace kvopt
