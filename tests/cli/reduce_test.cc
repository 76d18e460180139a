// kvopt reduce: what it answers, what it refuses, and which files remain.
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace cli;

namespace {

using testing::HasSubstr;

/// A chain of operators, one of which no other model has, with weights in a file of their own.
std::string chainModel(const TemporaryFolder& folder) {
  const std::string text = folder.write(
      "chain.onnxtxt", R"(
<ir_version: 8, opset_import: ["" : 17], producer_name: "secret producer">
chain (float[N, 64] secret_x) => (float[N, 64] y, float[N, 64] side)
<float[64] w = {)" + [] {
        std::string list = "1";
        for (int i = 1; i < 64; ++i)
          list += ", " + std::to_string(i);
        return list;
      }() + R"(}>
{
  a = Tanh (secret_x)
  b = Mul (a, w)
  side = Neg (b)
  c = Erf (b)
  d = Exp (c)
  y = Sqrt (d)
})");
  const std::string model = folder.path("chain.onnx");
  EXPECT_EQ(runProgram({"opt", text, "--pipeline", "", "-o", model}).code, 0);
  return model;
}

TEST(ReduceTest, OneNodeRemains) {
  TemporaryFolder folder;
  const std::string model = chainModel(folder);
  const std::string small = folder.path("small.onnx");
  nlohmann::json json = runJson({"reduce", model, "--while", "grep -q Erf {}", "-o", small});
  EXPECT_EQ(json["schema"], "kvopt/reduce/1");
  EXPECT_EQ(json["exit_code_of_command"], 0);
  EXPECT_EQ(json["before"]["nodes"], 6);
  EXPECT_EQ(json["after"]["nodes"], 1);
  EXPECT_EQ(json["after"]["inputs"], 1);
  EXPECT_EQ(json["after"]["outputs"], 1);
  EXPECT_EQ(json["after"]["initializers"], 0);
  size_t candidates = 0;
  for (const nlohmann::json& step : json["steps"])
    candidates += step["candidates"].get<size_t>();
  EXPECT_EQ(json["candidates"], candidates);
  const ProgramResult text = runProgram({"opt", small, "--pipeline", ""});
  EXPECT_THAT(text.out, HasSubstr("c = Erf (b)"));
  // Nothing else is left: the text, the model and the result.
  EXPECT_EQ(folder.entryCount(), 3u);
}

TEST(ReduceTest, TheExitCodeNeedNotBeZero) {
  TemporaryFolder folder;
  const std::string model = chainModel(folder);
  const std::string small = folder.path("small.onnx");
  const ProgramResult result =
      runProgram({"reduce", model, "--while", "grep -q Exp {} && exit 7", "-o", small});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 of 6 nodes; the command still exits with 7"));
}

TEST(ReduceTest, NamesGoOnRequest) {
  TemporaryFolder folder;
  const std::string model = chainModel(folder);
  const std::string small = folder.path("small.onnx");
  EXPECT_EQ(runProgram({"reduce", model, "--while", "grep -q Tanh {}", "-o", small}).code, 0);
  EXPECT_THAT(folder.read("small.onnx"), HasSubstr("secret"));
  EXPECT_EQ(
      runProgram({"reduce", model, "--while", "grep -q Tanh {}", "-o", small, "--anonymize"}).code,
      0);
  EXPECT_THAT(folder.read("small.onnx"), testing::Not(HasSubstr("secret")));
  EXPECT_THAT(folder.read("small.onnx"), HasSubstr("Tanh"));
}

TEST(ReduceTest, EveryPlaceOfThePathIsReplacedAndQuoted) {
  TemporaryFolder folder;
  const std::string model = chainModel(folder);
  std::filesystem::create_directory(folder.path("a 'b"));
  const std::string small = folder.path("a 'b/small.onnx");
  const ProgramResult result =
      runProgram({"reduce", model, "--while", "test -s {} && grep -q Erf {}", "-o", small});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 of 6 nodes"));
}

TEST(ReduceTest, ManifestsGoWhereTheyAreNotNeeded) {
  TemporaryFolder folder;
  const std::string model = folder.path("fused.onnx");
  EXPECT_EQ(runProgram({"rewrite", shippedModel("gpt2-dynamo18-eager"), "-o", model, "--to",
                        "kvopt", "--verify", "off"})
                .code,
            0);
  const std::string small = folder.path("small.onnx");
  // The command reads the manifest in the place where programs look for it.
  nlohmann::json json =
      runJson({"reduce", model, "--while",
               "f={}; test -s ${f%.onnx}.kv.json && grep -q LayerNormalization $f", "-o", small});
  EXPECT_EQ(json["manifest"], true);
  EXPECT_TRUE(std::filesystem::exists(folder.path("small.kv.json")));
  EXPECT_LT(json["after"]["nodes"], json["before"]["nodes"]);
  json = runJson({"reduce", model, "--while", "grep -q LayerNormalization {}", "-o",
                  folder.path("less.onnx")});
  EXPECT_EQ(json["manifest"], false);
  EXPECT_FALSE(std::filesystem::exists(folder.path("less.kv.json")));
}

TEST(ReduceTest, ExternalDataStaysWhereItIs) {
  TemporaryFolder folder;
  const std::string model = folder.path("large.onnx");
  // Weights of a terabyte, of which no file system has a block.
  ASSERT_EQ(
      runProgram({"gen", "llama", "-o", model, "--layers", "1", "--hidden", "16384", "--heads",
                  "16", "--vocab", "1000000", "--sparse", "--external-data", "always"})
          .code,
      0);
  const std::string small = folder.path("small.onnx");
  nlohmann::json json = runJson({"reduce", model, "--while", "grep -q Sigmoid {}", "-o", small});
  EXPECT_EQ(json["after"]["nodes"], 1);
  EXPECT_EQ(json["external_data"], false);
  EXPECT_FALSE(std::filesystem::exists(small + ".data"));
  // Weights that the command needs are copied, as holes.
  const std::string data = "$(dirname {})/large.onnx.data";
  const std::string hasOneName = "test -s " + data + " && test $(stat -c %h " + data + ") = 1";
  json = runJson(
      {"reduce", model, "--while", hasOneName + " && grep -q large.onnx.data {}", "-o", small});
  EXPECT_EQ(std::filesystem::hard_link_count(folder.path("large.onnx.data")), 1u);
  EXPECT_EQ(json["external_data"], true);
  EXPECT_TRUE(std::filesystem::exists(small + ".data"));
  EXPECT_EQ(runProgram({"opt", small, "--pipeline", ""}).code, 0);
}

TEST(ReduceTest, WrongRequestsHaveOneError) {
  TemporaryFolder folder;
  const std::string model = chainModel(folder);
  const std::string small = folder.path("small.onnx");
  ProgramResult result = runProgram({"reduce", model, "--while", "grep -q Erf", "-o", small});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("does not contain '{}'"));
  result =
      runProgram({"reduce", model, "--while", "sleep 5; true {}", "--timeout", "1", "-o", small});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("more than 1 s on the whole model"));
  // The first run creates a file, and the second one sees it.
  const std::string flag = folder.path("flag");
  result = runProgram(
      {"reduce", model, "--while", "test ! -e " + flag + " && touch " + flag + " {}", "-o", small});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("is 0 for the model and 1 for a copy of it"));
  result = runProgram({"reduce", model, "--while", "true {}", "-o", model});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("would overwrite"));
  result = runProgram({"reduce", folder.path("missing.onnx"), "--while", "true {}", "-o", small});
  EXPECT_EQ(result.code, 3);
  result = runProgram({"reduce", model, "-o", small});
  EXPECT_EQ(result.code, 2);
  EXPECT_FALSE(std::filesystem::exists(small + ".data"));
}

} // namespace
} // namespace kvopt
