// `kvopt check --counterexample`: the step in which two models differ, as a recording.
#include "tests/cli/cli_fixture.h"

#include <filesystem>

namespace kvopt {
namespace {

class CounterexampleTest : public ::testing::Test {
protected:
  /// A model that multiplies its input by a factor.
  std::string model(const std::string& name, const std::string& factor) {
    const std::string text = R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[B, S, 4] inputs_embeds, int64[B, T] attention_mask) => (float[B, S, 4] out, int64[B, T] seen)
<float factor = {)" + factor +
                             R"(}>
{
  out = Mul (inputs_embeds, factor)
  seen = Identity (attention_mask)
}
)";
    const std::string path = folder.path(name + ".onnx");
    EXPECT_EQ(runProgram({"opt", folder.write(name + ".onnxtxt", text), "-o", path}).code, 0);
    return path;
  }

  TemporaryFolder folder;
  const std::string first = model("first", "0.5");
  const std::string recording = folder.path("recording");
};

TEST_F(CounterexampleTest, ReplaysTheDifference) {
  const std::string other = model("other", "0.75");
  const ProgramResult result = runProgram({"check", first, other, "--counterexample", recording});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_NE(result.out.find("shows the difference in floats"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("kvopt verify " + other + " --reference " + recording),
            std::string::npos)
      << result.out;
  EXPECT_EQ(runProgram({"verify", other, "--reference", recording}).code, 1);
  EXPECT_EQ(runProgram({"verify", first, "--reference", recording}).code, 0);
}

TEST_F(CounterexampleTest, SaysWhatFloatsDoNotShow) {
  const std::string other = model("other", "0.50001");
  const nlohmann::json report = nlohmann::json::parse(
      runProgram({"check", first, other, "--counterexample", recording, "--format", "json"}).out);
  EXPECT_EQ(report["verdict"], "different");
  EXPECT_EQ(report["replay"]["visible"], false) << report["replay"];
  EXPECT_EQ(report["replay"]["folder"], recording);
  EXPECT_EQ(runProgram({"verify", other, "--reference", recording}).code, 0);
}

TEST_F(CounterexampleTest, WritesNothingWithoutADifferenceOrOverAFile) {
  const ProgramResult equal =
      runProgram({"check", first, model("same", "0.5"), "--counterexample", recording});
  EXPECT_EQ(equal.code, 0) << equal.out;
  EXPECT_FALSE(std::filesystem::exists(recording));
  const std::string other = model("other", "0.75");
  const ProgramResult taken =
      runProgram({"check", first, other, "--counterexample", folder.path(".")});
  EXPECT_NE(taken.code, 0);
  EXPECT_NE(taken.err.find("empty"), std::string::npos) << taken.err;
  EXPECT_TRUE(std::filesystem::exists(other));
}

} // namespace
} // namespace kvopt
