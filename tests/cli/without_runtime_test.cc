// Commands of a program that cannot run models.
#include "driver/toolkit.h"
#include "tests/cli/cli_fixture.h"

#include <filesystem>

namespace kvopt {
namespace {

ProgramResult withoutRuntime(const std::vector<std::string>& arguments) {
  return runProgram(arguments, [](driver::Toolkit& toolkit) { toolkit.runner.reset(); });
}

class WithoutRuntimeTest : public testing::Test {
protected:
  TemporaryFolder folder;
  const std::string model = shippedModel("qwen2-dynamo23-sdpa");
  const std::string output = folder.path("out.onnx");
};

TEST_F(WithoutRuntimeTest, ARewriteIsChecked) {
  const ProgramResult written = withoutRuntime({"rewrite", model, "-o", output, "--to", "kvopt"});
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_NE(written.out.find("checked  proved"), std::string::npos) << written.out;
  EXPECT_EQ(written.out.find("kvopt run"), std::string::npos) << written.out;
  EXPECT_EQ(withoutRuntime({"check", model, output}).code, 0);
  EXPECT_EQ(withoutRuntime({"inspect", output}).code, 0);
}

/// Only runs show more than that all steps of the check are equal.
TEST_F(WithoutRuntimeTest, WhatIsNotProvedIsWrittenIfItIsEqualInTheWholeScope) {
  const std::vector<std::string> paged = {"rewrite",   shippedModel("llama_gqa-ts14-eager"),
                                          "-o",        output,
                                          "--to",      "ort",
                                          "--cache",   "paged",
                                          "--padding", "none"};
  const ProgramResult written = withoutRuntime(paged);
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_NE(written.out.find("checked  not proved, but"), std::string::npos) << written.out;
}

TEST_F(WithoutRuntimeTest, WhatNeedsARunIsOneError) {
  const std::string text = std::string(KVOPT_SOURCE_DIR) + "/models/kjv/heldout.txt";
  const std::vector<std::vector<std::string>> commands = {
      {"rewrite", model, "-o", output, "--to", "kvopt", "--verify", "quick"},
      {"rewrite", model, "-o", output, "--to", "kvopt", "--verify", "full"},
      {"rewrite", shippedModel("kjv"), "-o", output, "--to", "ort", "--rows", "int8",
       "--calibration-text", text},
      {"list", "kernels"},
  };
  for (const std::vector<std::string>& command : commands) {
    const ProgramResult result = withoutRuntime(command);
    EXPECT_EQ(result.code, 2) << command.front();
    EXPECT_EQ(countLines(result.err), 1u) << result.err;
    EXPECT_NE(result.err.find("this build of kvopt has no runtime"), std::string::npos)
        << result.err;
    EXPECT_NE(result.err.find("-DKVOPT_RUNTIME=ON"), std::string::npos) << result.err;
  }
  EXPECT_FALSE(std::filesystem::exists(output));
}

/// The exported model has no caches to compare.
TEST_F(WithoutRuntimeTest, AddedCachesAreNotDecided) {
  const std::string whole = folder.path("whole.onnx");
  ASSERT_EQ(withoutRuntime(
                {"gen", "llama", "--layers", "1", "--vocab", "64", "--cache", "none", "-o", whole})
                .code,
            0);
  const ProgramResult refused = withoutRuntime({"add-cache", whole, "-o", output});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("--verify off writes without comparing"), std::string::npos)
      << refused.err;
  EXPECT_FALSE(std::filesystem::exists(output));
  EXPECT_EQ(withoutRuntime({"add-cache", whole, "-o", output, "--verify", "off"}).code, 0);
}

/// Exact arithmetic finds differences that floats do not show.
TEST_F(WithoutRuntimeTest, ADifferenceIsNotDecided) {
  const std::string other = folder.path("other.onnx");
  for (const auto& [path, seed] : {std::pair(output, "1"), std::pair(other, "2")})
    ASSERT_EQ(withoutRuntime(
                  {"gen", "llama", "--layers", "1", "--vocab", "64", "--seed", seed, "-o", path})
                  .code,
              0);
  const ProgramResult result = withoutRuntime({"check", output, other});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("skipped: not every output is decided"), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("this build of kvopt has no runtime"), std::string::npos) << result.out;
}

} // namespace
} // namespace kvopt
