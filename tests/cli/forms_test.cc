// The options that choose a form, and the form that is chosen without them.
#include "tests/cli/cli_fixture.h"

#include <fstream>
#include <gmock/gmock.h>

namespace kvopt {
using namespace cli;

namespace {

using testing::AllOf;
using testing::HasSubstr;

class FormsTest : public testing::Test {
protected:
  /// `kvopt COMMAND MODEL -o out.onnx` with more options.
  ProgramResult run(std::vector<std::string> more,
                    const std::string& model = "llama_gqa-ts14-eager",
                    const std::string& command = "rewrite") {
    std::vector<std::string> arguments{command, shippedModel(model), "-o", folder.path("out.onnx")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runProgram(arguments);
  }

  TemporaryFolder folder;
};

TEST_F(FormsTest, WithoutAnEngineTheFirstLineSaysTheForm) {
  const ProgramResult ort = run({"--verify", "off"});
  EXPECT_EQ(ort.code, 0) << ort.err;
  EXPECT_THAT(ort.out, HasSubstr("(--to ort; other forms: kvopt list targets)\n"));
  const ProgramResult asked = run({"--verify", "off", "--to", "ort"});
  EXPECT_EQ(asked.out.find("other forms"), std::string::npos);
  const nlohmann::json json =
      nlohmann::json::parse(run({"--verify", "off", "--format", "json"}).out);
  EXPECT_EQ(json["target"], "ort-gqa");
  EXPECT_EQ(json["form"]["options"], "--to ort");
  EXPECT_TRUE(json["form"]["refused"].empty());
}

TEST_F(FormsTest, AModelThatOnnxRuntimeCannotTakeGetsOnnxsOperators) {
  const std::string latent = folder.path("latent.onnx");
  ASSERT_EQ(runProgram({"gen", "mla-latent", "-o", latent, "--layers", "1", "--hidden", "32",
                        "--heads", "2", "--vocab", "32"})
                .code,
            0);
  const ProgramResult result =
      runProgram({"rewrite", latent, "-o", folder.path("out.onnx"), "--verify", "off"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\n  form     --to onnx, because --to ort is not possible: "));
  const nlohmann::json json =
      nlohmann::json::parse(runProgram({"rewrite", latent, "-o", folder.path("out.onnx"),
                                        "--verify", "off", "--format", "json"})
                                .out);
  EXPECT_EQ(json["target"], "onnx24");
  ASSERT_EQ(json["form"]["refused"].size(), 1u);
  EXPECT_EQ(json["form"]["refused"][0]["options"], "--to ort");
}

TEST_F(FormsTest, AModelThatNoFormTakesIsRefusedWithEveryReason) {
  const ProgramResult result = run({"--disable", "raise-spelled-attention"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--to ort is not possible: "),
                                HasSubstr("--to onnx is not possible: ")));
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST_F(FormsTest, GenaiNeedsNoLengthOfKvoptsOperators) {
  const ProgramResult result =
      run({"--to", "kvopt", "--genai-config", folder.path("genai_config.json")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("checked  proved"), HasSubstr("\n  genai    ")));
  const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(folder.path("out.kv.json")));
  EXPECT_TRUE(manifest["lengths"].empty());
  EXPECT_EQ(manifest["operators"],
            nlohmann::json({{"domain", "ai.kvopt"}, {"version", 1}, {"names", {"InPlaceKvSdpa"}}}));
}

TEST_F(FormsTest, ContradictionsAreUsageErrors) {
  const std::vector<std::string> cases[] = {
      {"--to", "int8", "--rows", "int4"},
      {"--to", "ort", "--cache", "ring"},
      {"--to", "kvopt", "--opset", "23"},
      {"--rows", "int8", "--cache-dtype", "float16"},
      {"--to", "onnx", "--genai-config", folder.path("genai.json")},
      {"--cache", "ring", "--genai-config", folder.path("genai.json")},
      {"--to", "kvopt:16"},
      {"--to", "ring", "--rows", "int8:4"},
      {"--cache", "rink"},
      {"--split", "tiles:0"},
      {"--opset", "22"},
  };
  for (const std::vector<std::string>& options : cases) {
    const ProgramResult result = run(options);
    EXPECT_EQ(result.code, 2) << testing::PrintToString(options) << result.err;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST_F(FormsTest, ExplainTakesTheSameOptions) {
  const ProgramResult result = runProgram(
      {"explain", shippedModel("llama_gqa-ts14-eager"), "--to", "kvopt", "--cache", "ring"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("--to kvopt --cache ring: "));
  EXPECT_EQ(runProgram(
                {"explain", shippedModel("llama_gqa-ts14-eager"), "--to", "ort", "--cache", "ring"})
                .code,
            2);
}

TEST_F(FormsTest, CommandsWithADefaultEngineKeepIt) {
  const ProgramResult result = run({"--verify", "off", "--dry-run", "--format", "json"},
                                   "llama_gqa-ts14-eager", "make-dynamic");
  EXPECT_EQ(nlohmann::json::parse(result.out)["target"], "primitive");
}

} // namespace
} // namespace kvopt
