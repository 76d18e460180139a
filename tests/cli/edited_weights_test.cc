// Models that differ in a row of a table that few tokens or positions select.
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

namespace kvopt {
namespace {

using testing::HasSubstr;

class EditedWeightsTest : public ::testing::Test {
protected:
  void SetUp() override {
    ASSERT_EQ(runProgram({"gen", "llama", "--layers", "1", "--vocab", "900", "--hidden", "16",
                          "--heads", "2", "--intermediate", "16", "-o", first})
                  .code,
              0);
  }

  /// Writes the model with the first number of a row of its embeddings replaced.
  void editRow(const std::string& model, size_t row) {
    std::string text = runProgram({"opt", model, "--elements", "all"}).out;
    size_t at = text.find("float[900, ");
    ASSERT_NE(at, std::string::npos);
    const size_t width = std::stoul(text.substr(text.find(", ", at) + 2));
    at = text.find('{', at);
    for (size_t i = 0; i < row * width; ++i)
      at = text.find(',', at + 1);
    const size_t end = text.find(',', at + 1);
    text.replace(at + 1, end - at - 1, " 7.5");
    ASSERT_EQ(runProgram({"opt", folder.write("edited.onnxtxt", text), "-o", edited}).code, 0);
  }

  TemporaryFolder folder;
  const std::string first = folder.path("first.onnx");
  const std::string second = folder.path("second.onnx");
  const std::string edited = folder.path("edited.onnx");
};

TEST_F(EditedWeightsTest, ARowOfTheEmbeddingsIsFound) {
  editRow(first, 777);
  const ProgramResult checked = runProgram({"check", first, edited});
  EXPECT_EQ(checked.code, 1);
  EXPECT_THAT(checked.out, HasSubstr("different: the models differ"));
  EXPECT_THAT(checked.out, HasSubstr("token 777"));
  const ProgramResult verified = runProgram({"verify", first, edited});
  EXPECT_EQ(verified.code, 1);
  EXPECT_THAT(verified.out, HasSubstr("DIFFERENT: weights: row 777 of "));
}

TEST_F(EditedWeightsTest, TheReplayShowsTheRow) {
  editRow(first, 777);
  const ProgramResult result =
      runProgram({"check", first, edited, "--counterexample", folder.path("example")});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("shows the difference in floats"));
}

TEST_F(EditedWeightsTest, AClaimOfARewriteDoesNotHideIt) {
  ASSERT_EQ(runProgram({"rewrite", first, "-o", second, "--to", "ort"}).code, 0);
  editRow(second, 777);
  const ProgramResult checked = runProgram({"check", first, edited});
  EXPECT_EQ(checked.code, 1);
  EXPECT_THAT(checked.out, HasSubstr("different: the models differ"));
  EXPECT_EQ(runProgram({"verify", first, edited}).code, 1);
}

} // namespace
} // namespace kvopt
