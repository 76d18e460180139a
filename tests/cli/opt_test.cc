// kvopt opt: text and ONNX in and out, pipelines, what may be disabled, what it prints.
#include "tests/cli/decoder_text.h"

namespace kvopt {
using namespace cli;

namespace {

constexpr const char* identities = R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x) => (float[N] y)
{
  a = Identity (x)
  y = Relu (a)
}
)";

TEST(OptTest, AnEmptyPipelinePrintsTheModel) {
  TemporaryFolder folder;
  ProgramResult result = runProgram({"opt", folder.write("g.onnxtxt", identities)});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("a = Identity (x)"), std::string::npos) << result.out;
}

TEST(OptTest, WhatItPrintsItReadsAndPrintsAgain) {
  TemporaryFolder folder;
  std::string path = folder.write("d.onnxtxt", decoderText({LayerSpelling::Plain}));
  std::string first = runProgram({"opt", path, "--pipeline", "infer-shapes,normalize"}).out;
  ASSERT_NE(first, "");
  ProgramResult second = runProgram({"opt", folder.write("again.onnxtxt", first)});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.out, first);
}

TEST(OptTest, AModelIsWrittenAndReadBack) {
  TemporaryFolder folder;
  std::string model = folder.path("g.onnx");
  ProgramResult written =
      runProgram({"opt", folder.write("g.onnxtxt", identities), "-o", model, "--pipeline", ""});
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(written.out, "");
  ProgramResult read = runProgram({"opt", model, "--pipeline", "infer-shapes,normalize"});
  EXPECT_EQ(read.code, 0) << read.err;
  EXPECT_EQ(read.out.find("Identity"), std::string::npos) << read.out;
}

TEST(OptTest, RulesAndPassesCanBeDisabled) {
  TemporaryFolder folder;
  std::string path = folder.write("g.onnxtxt", identities);
  for (const char* name : {"remove-identity", "normalize"}) {
    ProgramResult result =
        runProgram({"opt", path, "--pipeline", "infer-shapes,normalize", "--disable", name});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("Identity"), std::string::npos) << name;
  }
  ProgramResult unknown = runProgram({"opt", path, "--disable", "remove-identities"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.out, "");
  EXPECT_NE(unknown.err.find("'remove-identities'"), std::string::npos) << unknown.err;
}

TEST(OptTest, NearMissesTimingAndStatistics) {
  TemporaryFolder folder;
  std::string path = folder.write("d.onnxtxt", decoderText({LayerSpelling::Gated}));
  ProgramResult result = runProgram({"opt", path, "--explain", "--timing", "--statistics",
                                     "--pipeline", "infer-shapes,raise-attention,detect-sites"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("near-miss raise-spelled-attention at 'o_0'"), std::string::npos)
      << result.out;
  EXPECT_NE(result.err.find("raise-attention"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(" ms"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("missed"), std::string::npos) << result.err;
}

TEST(OptTest, IrIsPrintedAroundPasses) {
  TemporaryFolder folder;
  std::string path = folder.write("g.onnxtxt", identities);
  ProgramResult result = runProgram({"opt", path, "--pipeline", "infer-shapes,normalize",
                                     "--print-ir-before", "normalize", "--print-ir-after", "all"});
  EXPECT_EQ(result.code, 0);
  for (const char* header : {"before normalize", "after infer-shapes", "after normalize"})
    EXPECT_NE(result.err.find(header), std::string::npos) << header;
  EXPECT_EQ(result.err.find("before infer-shapes"), std::string::npos);
}

TEST(OptTest, ErrorsHaveTheirExitCodes) {
  TemporaryFolder folder;
  std::string good = folder.write("g.onnxtxt", identities);
  EXPECT_EQ(runProgram({"opt"}).code, 2);
  for (const char* pipeline : {"no-such-pass", "normalize,", "normalize{", "lower",
                               "normalize{colour=red}", "apply-rules{rules=no-rule}"}) {
    ProgramResult result = runProgram({"opt", good, "--pipeline", pipeline});
    EXPECT_EQ(result.code, 2) << pipeline << ": " << result.err;
    EXPECT_EQ(result.out, "") << pipeline;
  }
  for (const std::string& path :
       {folder.path("missing.onnx"), folder.path("missing.onnxtxt"), folder.path(),
        folder.write("text.onnx", identities), folder.write("wrong.onnxtxt", "Dear model,\n"),
        folder.write("empty.onnxtxt", "")}) {
    ProgramResult result = runProgram({"opt", path});
    EXPECT_EQ(result.code, 3) << path << ": " << result.err;
    EXPECT_EQ(countLines(result.err), 1u) << result.err;
    EXPECT_NE(result.err.find(path), std::string::npos) << result.err;
  }
}

TEST(OptTest, LargeTensorsAreLeftOutOfTheText) {
  TemporaryFolder folder;
  const std::string model = folder.path("m.onnx");
  ASSERT_EQ(runProgram({"gen", "llama", "-o", model, "--vocab", "32"}).code, 0);
  const ProgramResult brief = runProgram({"opt", model});
  ASSERT_EQ(brief.code, 0);
  // 32 tokens of width 64.
  EXPECT_NE(brief.out.find("{…2048 elements}"), std::string::npos);
  const ProgramResult again = runProgram({"opt", folder.write("brief.onnxtxt", brief.out)});
  EXPECT_EQ(again.code, 3);
  EXPECT_EQ(countLines(again.err), 1u) << again.err;
  EXPECT_NE(again.err.find("kvopt opt --elements all"), std::string::npos) << again.err;
  const ProgramResult whole = runProgram({"opt", model, "--elements", "all"});
  EXPECT_EQ(whole.out.find("…"), std::string::npos);
  EXPECT_GT(whole.out.size(), 8 * brief.out.size());
  const std::string text = folder.write("whole.onnxtxt", whole.out);
  EXPECT_EQ(runProgram({"opt", text, "--elements", "all"}).out, whole.out);
  EXPECT_EQ(runProgram({"opt", text}).out, brief.out);
  EXPECT_EQ(runProgram({"opt", model, "--elements", "2048"}).out.find("{…2048"), std::string::npos);
  EXPECT_EQ(runProgram({"opt", model, "--elements", "some"}).code, 2);
}

} // namespace
} // namespace kvopt
