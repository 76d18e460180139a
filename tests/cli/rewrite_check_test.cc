// `--verify check`: a rewrite that is checked without running the models.
#include "tests/cli/cli_fixture.h"

#include <filesystem>

namespace kvopt {
namespace {

TEST(RewriteCheckTest, ShippedModelsAreProved) {
  TemporaryFolder folder;
  const std::string output = folder.path("out.onnx");
  for (const char* target : {"ort", "onnx", "kvopt", "primitive"}) {
    const ProgramResult result = runProgram({"rewrite", shippedModel("qwen2-dynamo23-sdpa"), "-o",
                                             output, "--to", target, "--verify", "check"});
    EXPECT_EQ(result.code, 0) << target << result.err;
    EXPECT_NE(result.out.find("checked  proved: all 5 outputs"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("rounding is not looked at"), std::string::npos) << result.out;
    EXPECT_TRUE(std::filesystem::exists(output));
    std::filesystem::remove(output);
  }
}

TEST(RewriteCheckTest, TheReportHasTheVerdict) {
  TemporaryFolder folder;
  const nlohmann::json report =
      runJson({"rewrite", shippedModel("qwen2-dynamo23-sdpa"), "-o", folder.path("out.onnx"),
               "--to", "kvopt", "--verify", "check"});
  EXPECT_TRUE(report["verify"].is_null());
  EXPECT_EQ(report["check"]["verdict"], "proved-reduced");
  EXPECT_EQ(report["check"]["outputs"].size(), 5u);
}

/// Rows of codes are not decided: nothing is written under a claim that nothing shows.
TEST(RewriteCheckTest, NothingIsWrittenThatIsNotDecided) {
  TemporaryFolder folder;
  const std::string output = folder.path("out.onnx");
  const std::string text = shortHeldoutText(folder);
  const ProgramResult result =
      runProgram({"rewrite", shippedModel("kjv"), "-o", output, "--to", "ort", "--rows", "int8",
                  "--calibration-text", text, "--verify", "check"});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("its rows are codes"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("could not be compared; nothing was written"), std::string::npos)
      << result.err;
  EXPECT_FALSE(std::filesystem::exists(output));
}

/// Branches that differ: what `--one-branch` takes for granted is wrong, and nothing is written.
TEST(RewriteCheckTest, NothingIsWrittenThatDiffers) {
  TemporaryFolder folder;
  const std::string merged = folder.path("merged.onnx"), output = folder.path("out.onnx");
  ASSERT_EQ(
      runProgram({"gen", "llama", "--merged", "--layers", "1", "--vocab", "64", "-o", merged}).code,
      0);
  const auto rewritten = [&](const std::string& model) {
    return runProgram(
        {"rewrite", model, "-o", output, "--to", "kvopt", "--one-branch", "--verify", "check"});
  };
  const ProgramResult equal = rewritten(merged);
  EXPECT_EQ(equal.code, 0) << equal.out << equal.err;
  std::filesystem::remove(output);
  std::string text = runProgram({"opt", merged, "--elements", "all"}).out;
  const std::string sigmoid = "Sigmoid (";
  ASSERT_LT(text.find("no_past ()"), text.find(sigmoid));
  text.replace(text.find(sigmoid), sigmoid.size(), "Tanh (");
  const std::string other = folder.path("other.onnx");
  ASSERT_EQ(runProgram({"opt", folder.write("other.onnxtxt", text), "-o", other}).code, 0);
  const ProgramResult result = rewritten(other);
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("a check finds a difference; nothing was written"), std::string::npos)
      << result.out << result.err;
  EXPECT_FALSE(std::filesystem::exists(output));
}

TEST(CheckTest, EqualInTheScopeIsNoSuccessUnlessAllowed) {
  TemporaryFolder folder;
  const std::string text = R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[B, S, 4] inputs_embeds) => (float[B, S, 4] out)
<int64[1] far = {100}, float two = {2}, float whole = {1}>
{
  shape = Shape (inputs_embeds)
  BODY
}
)";
  auto model = [&](const char* name, const std::string& body) {
    std::string filled = text;
    filled.replace(filled.find("BODY"), 4, body);
    const std::string path = folder.path(std::string(name) + ".onnx");
    EXPECT_EQ(
        runProgram({"opt", folder.write(std::string(name) + ".onnxtxt", filled), "-o", path}).code,
        0);
    return path;
  };
  const std::string before = model("before", "out = Mul (inputs_embeds, whole)");
  // A batch of more than 100 rows, which the scope does not have.
  const std::string after = model(
      "after", "is_far = Greater (shape, far) factor = Where (is_far, two, whole) "
               "largest = ReduceMax <keepdims = 0> (factor) out = Mul (inputs_embeds, largest)");
  ProgramResult result = runProgram({"check", before, after});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("tested"), std::string::npos) << result.out;
  result = runProgram({"check", before, after, "--allow-tested"});
  EXPECT_EQ(result.code, 0) << result.out;
}

} // namespace
} // namespace kvopt
