// kvopt rewrite --to ort-gqa --cache-dtype int8 and int4.
#include "tests/cli/cli_fixture.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>

namespace kvopt {
using namespace cli;

namespace {

using testing::HasSubstr;

class CodeCachesCliTest : public testing::Test {
protected:
  ProgramResult rewrite(const std::string& output, const std::string& dtype,
                        std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"rewrite", model,           "-o", output, "--to",
                                          "ort-gqa", "--cache-dtype", dtype};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runProgram(arguments);
  }

  /// A file of the beginning of the text that the model has not seen.
  std::string writtenText(size_t bytes) const {
    std::ifstream file(std::string(KVOPT_SOURCE_DIR) + "/models/kjv/heldout.txt");
    std::string beginning(bytes, ' ');
    file.read(beginning.data(), static_cast<std::streamsize>(bytes));
    return texts.write("text.txt", beginning);
  }

  TemporaryFolder folder;
  TemporaryFolder texts;
  std::string model = shippedModel("kjv");
  /// Enough for codes of four bits.
  std::string text = writtenText(8192);
};

TEST_F(CodeCachesCliTest, AreWrittenVerifiedAndRun) {
  for (const auto& [dtype, bound] : {std::pair("int8", "1"), std::pair("int4", "3")}) {
    SCOPED_TRACE(dtype);
    const std::string file = folder.path(std::string(dtype) + ".onnx");
    const ProgramResult written = rewrite(file, dtype, {"--calibration-text", text});
    ASSERT_EQ(written.code, 0) << written.err;
    EXPECT_THAT(written.out, HasSubstr("scales   calibrated on "));
    EXPECT_THAT(written.out, HasSubstr("; rows identical"));
    EXPECT_EQ(runProgram({"run", file, "--text", "In the beginning ", "--steps", "9"}).out,
              "of the ch\n");
    // What is there already stays.
    const ProgramResult again =
        runProgram({"rewrite", file, "-o", folder.path("again.onnx"), "--to", "ort-gqa"});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.out, HasSubstr("is in the form of 'ort-gqa' already"));
    EXPECT_EQ(runProgram({"rewrite", file, "-o", folder.path("x.onnx"), "--to", "kvopt"}).code, 1);
    const ProgramResult shifted = runProgram(
        {"run", file, "--text", "In ", "--steps", "80", "--capacity", "40", "--context-shift"});
    EXPECT_EQ(shifted.code, 4);
    const ProgramResult recorded =
        runProgram({"verify", file, "--reference",
                    std::string(KVOPT_SOURCE_DIR) + "/models/kjv/ref/b1.onnx", "--atol", bound});
    EXPECT_EQ(recorded.code, 0) << recorded.out << recorded.err;
  }
  const ProgramResult json =
      rewrite(folder.path("json.onnx"), "int8",
              {"--calibration-text", text, "--verify", "off", "--format", "json"});
  ASSERT_EQ(json.code, 0) << json.err;
  EXPECT_GT(nlohmann::json::parse(json.out)["calibration_tokens"], 1000);
}

TEST_F(CodeCachesCliTest, NeedATextAndTheTarget) {
  const std::string output = folder.path("none.onnx");
  const std::vector<std::string> calibrated = {"--calibration-text", text};
  ProgramResult result = rewrite(output, "int8");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("hint: --calibration-text FILE"));
  result = runProgram({"rewrite", model, "-o", output, "--to", "onnx24", "--cache-dtype", "int8",
                       "--calibration-text", text});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--to onnx24 and --cache-dtype int8 do not go together"));
  result =
      runProgram({"rewrite", model, "-o", output, "--to", "ort-gqa", "--calibration-text", text});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("require --to ort with --rows int8 or int4"));
  const std::string words = folder.path("words.onnx");
  ASSERT_EQ(runProgram({"gen", "llama", "--vocab", "300", "-o", words}).code, 0);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"rewrite", words, "-o", output, "--rows", "int8",
                                 "--calibration-text", text},
        {"verify", words, words, "--text-file", text},
        {"run", words, "--text", "a"}}) {
    result = runProgram(arguments);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("is for byte-level models, and this model has 300 tokens"));
    EXPECT_EQ(result.out, "");
  }
  std::filesystem::remove(words);
  result = rewrite(output, "int8", {"--calibration-tokens", model});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("is not a token number"));
  result = rewrite(output, "int8", {"--calibration-text", folder.path("missing")});
  EXPECT_EQ(result.code, 3);
  result = rewrite(output, "int8",
                   {"--calibration-text", text, "--genai-config", folder.path("genai.json")});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("holds codes"));
  EXPECT_EQ(folder.entryCount(), 0u);
}

} // namespace
} // namespace kvopt
