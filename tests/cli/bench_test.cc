// kvopt bench: what it measures and what it says of models that cannot be measured. Nothing here
// looks at how long anything took.
#include "tests/cli/cli_fixture.h"
#include "tests/cli/report/xml_check.h"

#include <fstream>
#include <sstream>

namespace kvopt {
using namespace cli;

namespace {

std::string contentsOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class BenchTest : public testing::Test {
protected:
  void SetUp() override {
    fused = folder.path("fused.onnx");
    ASSERT_EQ(runProgram({"rewrite", original, "-o", fused, "--to", "kvopt"}).code, 0);
  }

  TemporaryFolder folder;
  const std::string original = shippedModel("kjv");
  std::string fused;
};

TEST_F(BenchTest, ARowForEveryModelDepthAndNumberOfThreads) {
  std::string plot = folder.path("plot.svg");
  nlohmann::json json = runJson({"bench", "-d", "0,5,70", original, fused, "-p", "9", "-n", "11",
                                 "-r", "2", "-t", "1,2", "--plot", plot});
  EXPECT_EQ(json["schema"], "kvopt/bench/1");
  EXPECT_EQ(json["machine"].count("host"), 0u);
  ASSERT_EQ(json["rows"].size(), 12u);
  size_t i = 0;
  for (int threads : {1, 2})
    for (int depth : {0, 5, 70})
      for (const std::string& model : {original, fused}) {
        const nlohmann::json& row = json["rows"][i++];
        EXPECT_EQ(row["model"], model);
        EXPECT_EQ(row["depth"], depth);
        EXPECT_EQ(row["threads"], threads);
        EXPECT_TRUE(row["error"].is_null()) << row;
        EXPECT_GT(row["prefill_tps"], 0.0);
        EXPECT_GT(row["decode_ms"]["min"], 0.0);
        EXPECT_LE(row["decode_ms"]["min"], row["decode_ms"]["median"]);
        EXPECT_LE(row["decode_ms"]["median"], row["decode_ms"]["max"]);
        EXPECT_GT(row["fraction_of_floor"], 0.0);
        EXPECT_GT(row["ratio_to_first"], 0.0);
        if (model == original) {
          EXPECT_EQ(row["ratio_to_first"], 1.0);
          EXPECT_EQ(row["prefill_ratio_to_first"], 1.0);
        }
        // Rounds of 8 and 3 steps: readings with 8 and 11 more rows, of 4 layers' keys and values
        // in 2 heads of 32 floats.
        EXPECT_EQ(row["cache_bytes"], (2 * depth + 8 + 11) * 4 * 2 * 2 * 32 * 4 / 2);
        EXPECT_GT(row["temporary_bytes"], 0);
      }
  // 4 layers of 128 wide matrices, and an embedding that is the last layer's, too.
  for (const nlohmann::json& row : json["rows"])
    EXPECT_GT(row["weight_bytes"], 1000000);
  EXPECT_EQ(XmlCheck(contentsOf(plot)).problem(), "");
}

TEST_F(BenchTest, Formats) {
  std::vector<std::string> arguments = {"bench", fused, "-d", "0", "-p", "0", "-r", "1", "-n", "2"};
  auto output = [&](const std::string& format) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), {"-t", "1", "-o", format});
    ProgramResult result = runProgram(all);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(countLines(output("csv")), 2u);
  EXPECT_NE(output("md").find("| model "), std::string::npos);
  nlohmann::json json = nlohmann::json::parse(output("json"));
  EXPECT_TRUE(json["rows"][0]["prefill_tps"].is_null());
  // Without -t: one thread, and one a core where there are several.
  nlohmann::json free = runJson(arguments);
  ASSERT_FALSE(free["rows"].empty());
  EXPECT_EQ(free["rows"][0]["threads"], 1);
}

TEST_F(BenchTest, PrefillAlone) {
  nlohmann::json json =
      runJson({"bench", fused, "-d", "0", "-p", "5", "-n", "0", "-r", "1", "-t", "1"});
  EXPECT_GT(json["rows"][0]["prefill_tps"], 0.0);
  EXPECT_TRUE(json["rows"][0]["decode_ms"].is_null());
  std::string plot = folder.path("plot.svg");
  ProgramResult none = runProgram(
      {"bench", fused, "-d", "0", "-p", "5", "-n", "0", "-r", "1", "-t", "1", "--plot", plot});
  EXPECT_EQ(none.code, 2);
  EXPECT_FALSE(std::filesystem::exists(plot));
}

TEST_F(BenchTest, WhatCannotRunSaysWhyAndTheRestIsMeasured) {
  std::string missing = folder.path("missing.onnx");
  // GPT-2's table of positions ends; the file of the first model does not exist.
  std::string gpt2 = shippedModel("gpt2-dynamo18-eager");
  nlohmann::json json = runJson(
      {"bench", missing, gpt2, fused, "-d", "0,130", "-p", "4", "-n", "2", "-r", "1", "-t", "1"},
      3);
  ASSERT_EQ(json["rows"].size(), 6u);
  for (size_t depth : {0, 1}) {
    EXPECT_NE(json["rows"][3 * depth]["error"].get<std::string>().find("missing.onnx"),
              std::string::npos);
    EXPECT_TRUE(json["rows"][3 * depth]["decode_ms"].is_null());
    EXPECT_TRUE(json["rows"][3 * depth + 2]["error"].is_null());
    EXPECT_TRUE(json["rows"][3 * depth + 2]["ratio_to_first"].is_null());
    EXPECT_GT(json["rows"][3 * depth + 2]["decode_ms"]["min"], 0.0);
  }
  EXPECT_TRUE(json["rows"][1]["error"].is_null()) << json["rows"][1];
  EXPECT_FALSE(json["rows"][4]["error"].is_null());
  EXPECT_TRUE(json["rows"][4]["decode_ms"].is_null());
  EXPECT_GT(json["rows"][4]["prefill_tps"], 0.0);
}

TEST_F(BenchTest, AMissingOperatorIsNamed) {
  std::string text = folder.write("odd.onnxtxt", R"(
<ir_version: 8, opset_import: ["" : 17, "nowhere" : 1]>
g (int64[B, S] input_ids) => (float[B, S, 8] logits) { logits = nowhere.Oddity(input_ids) }
)");
  std::string odd = folder.path("odd.onnx");
  ASSERT_EQ(runProgram({"opt", text, "--pipeline", "", "-o", odd}).code, 0);
  nlohmann::json json =
      runJson({"bench", fused, odd, "-d", "0", "-p", "0", "-n", "1", "-r", "1", "-t", "1"}, 4);
  EXPECT_TRUE(json["rows"][0]["error"].is_null());
  EXPECT_NE(json["rows"][1]["error"].get<std::string>().find("Oddity"), std::string::npos);
}

TEST_F(BenchTest, WrongUsage) {
  std::string before = contentsOf(fused);
  const std::vector<std::vector<std::string>> wrong = {
      {"bench"},
      {"bench", fused, "-p", "0", "-n", "0"},
      {"bench", fused, "-r", "0"},
      {"bench", fused, "-t", "0"},
      {"bench", fused, "-d", "-1"},
      {"bench", fused, "-o", "xml"},
      {"bench", fused, "-n", "1", "-p", "0", "--plot", fused},
  };
  for (const auto& arguments : wrong) {
    ProgramResult result = runProgram(arguments);
    EXPECT_EQ(result.code, 2) << testing::PrintToString(arguments) << result.err;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(contentsOf(fused), before);
}

} // namespace
} // namespace kvopt
