// kvopt run: the demonstration model says what it was recorded to say, before and after.
#include "tests/cli/cli_fixture.h"

#include <fstream>

namespace kvopt {
namespace {

TEST(RunTest, GreedyTextIsTheRecordedOneInEveryMode) {
  TemporaryFolder folder;
  ASSERT_EQ(
      runProgram({"rewrite", shippedModel("kjv"), "-o", folder.path("f.onnx"), "--to", "kvopt"})
          .code,
      0);
  std::ifstream file(std::string(KVOPT_SOURCE_DIR) + "/models/kjv/expected.json");
  auto expected = nlohmann::json::parse(file);
  ASSERT_EQ(expected["texts"].size(), 3u);
  for (const auto& text : expected["texts"]) {
    std::string greedy = text["greedy"];
    ASSERT_EQ(greedy.size(), 256u);
    for (const std::string& model : {shippedModel("kjv"), folder.path("f.onnx")})
      for (const char* cache : {"shared", "stateful"}) {
        nlohmann::json json =
            runJson({"run", model, "--text", text["prompt"], "--steps", "256", "--cache", cache});
        EXPECT_EQ(json["schema"], "kvopt/run/1");
        EXPECT_EQ(json["text"], greedy) << model << " " << cache;
        EXPECT_EQ(json["tokens"].size(), 256u);
      }
  }
}

TEST(RunTest, OverflowOfAGivenCapacity) {
  TemporaryFolder folder;
  ASSERT_EQ(
      runProgram({"rewrite", shippedModel("kjv"), "-o", folder.path("f.onnx"), "--to", "kvopt"})
          .code,
      0);
  std::vector<std::string> run{"run", folder.path("f.onnx"), "--text", "In the", "--steps",
                               "8",   "--capacity",          "8"};
  ProgramResult shared = runProgram(run);
  EXPECT_EQ(shared.code, 2);
  EXPECT_NE(shared.err.find("capacity of 8"), std::string::npos) << shared.err;
  run.insert(run.end(), {"--cache", "stateful"});
  EXPECT_EQ(runProgram(run).code, 0);
}

} // namespace
} // namespace kvopt
