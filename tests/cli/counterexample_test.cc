// `kvopt check --counterexample`: the step in which two models differ, as a recording.
#include "tests/cli/cli_fixture.h"

#include <filesystem>

namespace kvopt {
namespace {

class CounterexampleTest : public ::testing::Test {
protected:
  /// A model that multiplies its input by a factor, and copies its mask as `seen` says.
  std::string model(const std::string& name, const std::string& factor,
                    const std::string& seen = "Identity (attention_mask)",
                    const std::string& type = "int64") {
    const std::string text = R"(<ir_version: 8, opset_import: ["" : 18]>
g (float[B, S, 4] inputs_embeds, int64[B, T] attention_mask) => (float[B, S, 4] out, )" +
                             type + R"([B, T] seen)
<float factor = {)" + factor +
                             R"(}>
{
  out = Mul (inputs_embeds, factor)
  seen = )" + seen + R"(
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

/// Floats do not show it: that is no verdict, with and without a folder.
TEST_F(CounterexampleTest, SaysWhatFloatsDoNotShow) {
  const std::string other = model("other", "0.50001");
  const ProgramResult plain = runProgram({"check", first, other});
  EXPECT_EQ(plain.code, 1);
  EXPECT_NE(plain.out.find("skipped: not every output is decided"), std::string::npos) << plain.out;
  EXPECT_NE(plain.out.find("differs in exact arithmetic, but not in floats: batch "),
            std::string::npos)
      << plain.out;
  const nlohmann::json report = nlohmann::json::parse(
      runProgram({"check", first, other, "--counterexample", recording, "--format", "json"}).out);
  EXPECT_EQ(report["verdict"], "skipped");
  EXPECT_TRUE(report["outputs"][0].contains("counterexample")) << report["outputs"];
  EXPECT_EQ(report["replay"]["visible"], false) << report["replay"];
  EXPECT_EQ(report["replay"]["folder"], recording);
  EXPECT_EQ(runProgram({"verify", other, "--reference", recording}).code, 0);
}

/// What floats show is different without a folder, too, and nothing is written.
TEST_F(CounterexampleTest, WhatFloatsShowIsDifferent) {
  const nlohmann::json report = nlohmann::json::parse(
      runProgram({"check", first, model("other", "0.75"), "--format", "json"}).out);
  EXPECT_EQ(report["verdict"], "different");
  EXPECT_FALSE(report.contains("replay"));
  EXPECT_FALSE(std::filesystem::exists(recording));
}

/// A model that kvopt cannot run shows no difference.
TEST_F(CounterexampleTest, WhatDoesNotRunIsNotDecided) {
  const std::string seen = "BitwiseAnd (attention_mask, attention_mask)";
  const nlohmann::json report =
      nlohmann::json::parse(runProgram({"check", model("one", "0.5", seen),
                                        model("other", "0.75", seen), "--format", "json"})
                                .out);
  EXPECT_EQ(report["verdict"], "skipped");
  const std::string reason = report["outputs"][0]["reason"];
  EXPECT_NE(reason.find("which no run in floats confirms"), std::string::npos) << reason;
  EXPECT_NE(reason.find("the first model does not run: "), std::string::npos) << reason;
  EXPECT_NE(reason.find("BitwiseAnd"), std::string::npos) << reason;
}

/// An output of another type needs no run.
TEST_F(CounterexampleTest, AnotherTypeIsDifferentWithoutARun) {
  const std::string other = model("other", "0.5", "Cast <to = 6> (attention_mask)", "int32");
  const ProgramResult result = runProgram({"check", first, other});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("different: the models differ"), std::string::npos) << result.out;
}

/// A certificate of what is not decided is found again, with other fields, too.
TEST_F(CounterexampleTest, ACertificateOfWhatFloatsDoNotShowIsFoundAgain) {
  const std::string other = model("other", "0.50001"), certificate = folder.path("c.json");
  runProgram({"check", first, other, "--certificate", certificate});
  const ProgramResult result = runProgram({"check", first, other, "--against", certificate});
  EXPECT_EQ(result.code, 1) << result.err;
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
