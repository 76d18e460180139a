// The target int8 from the command line: what is said of a comparison in which rows are rounded.
#include "tests/cli/cli_fixture.h"

#include <filesystem>

namespace kvopt {
using namespace cli;

namespace {

class Int8CliTest : public testing::Test {
protected:
  void SetUp() override {
    ProgramResult result =
        runProgram({"rewrite", original, "-o", file, "--to", "int8", "--verify", "full"});
    ASSERT_EQ(result.code, 0) << result.err;
    report = result.out;
  }

  TemporaryFolder folder;
  std::string original = shippedModel("llama_gqa-ts14-eager");
  std::string file = folder.path("int8.onnx");
  std::string report;
};

TEST_F(Int8CliTest, TheReportSaysWhatWasCompared) {
  EXPECT_NE(report.find("OK without quantization: 53 steps compared"), std::string::npos) << report;
  EXPECT_NE(report.find("OK: int8 caches against their definition: 2 attention layers × 16 steps; "
                        "rows identical"),
            std::string::npos)
      << report;
  EXPECT_NE(report.find("quantization moves outputs by up to"), std::string::npos) << report;
  nlohmann::json json = runJson(
      {"rewrite", original, "-o", folder.path("again.onnx"), "--to", "int8", "--verify", "full"});
  // 2 layers, key and value, 2 heads of 16 elements and a scale.
  EXPECT_EQ(json["cache_bytes_copied_per_token"]["before"], 2 * 2 * 2 * 16 * 4 * 4096);
  EXPECT_EQ(json["cache_bytes_copied_per_token"]["after"], 2 * 2 * 2 * (16 + 4));
  EXPECT_EQ(json["ops"]["after"]["ai.kvopt::InPlaceQuantizedKvSdpa"], 2);
  EXPECT_EQ(json["verify"]["equal"], true);
  EXPECT_EQ(json["verify"]["quantization"]["rows_identical"], true);
  EXPECT_EQ(json["verify"]["quantization"]["sites"], 2);
  EXPECT_GT(json["verify"]["quantization"]["deviation_from_original"]["max_abs"], 0.0);
  EXPECT_EQ(folder.read("again.onnx"), folder.read("int8.onnx"));
}

TEST_F(Int8CliTest, VerifiesInEitherOrder) {
  for (bool swapped : {false, true}) {
    nlohmann::json json = runJson({"verify", swapped ? file : original, swapped ? original : file,
                                   "--steps", "4", "--pad", "left"});
    EXPECT_EQ(json["equal"], true);
    EXPECT_EQ(json["quantization"]["equal_to_definition"], true);
  }
}

/// Of rings, the last recorded rows.
TEST_F(Int8CliTest, RecordingsAreComparedWithTheLastRowsOfRings) {
  const std::string window = folder.path("window.onnx");
  ASSERT_EQ(runProgram({"gen", "window", "--window", "6", "--vocab", "64", "-o", window}).code, 0);
  ASSERT_EQ(runProgram({"run", window, "--tokens", "1,2,3", "--steps", "12", "--dump",
                        folder.path("steps")})
                .code,
            0);
  for (const auto& [target, bound] : {std::pair("int8-ring", "0.3"), std::pair("int4-ring", "3")}) {
    const std::string ring = folder.path(std::string(target) + ".onnx");
    ASSERT_EQ(runProgram({"rewrite", window, "-o", ring, "--to", target, "--verify", "off"}).code,
              0);
    const std::vector<std::string> compare = {"verify", ring, "--reference", folder.path("steps"),
                                              "--atol"};
    auto code = [&](const char* tolerance) {
      std::vector<std::string> arguments = compare;
      arguments.push_back(tolerance);
      return runProgram(arguments).code;
    };
    EXPECT_EQ(code(bound), 0) << target;
    EXPECT_EQ(code("1e-6"), 1) << target;
  }
}

TEST_F(Int8CliTest, RecordingsAreComparedWithWhatRowsStandFor) {
  const std::string reference = std::string(KVOPT_SOURCE_DIR) + "/models/llama_gqa-ts14-eager/ref";
  std::string recorded;
  for (const auto& entry : std::filesystem::directory_iterator(reference))
    recorded = entry.path().string();
  ProgramResult usual = runProgram({"verify", file, "--reference", recorded});
  EXPECT_EQ(usual.code, 1) << usual.err;
  EXPECT_NE(usual.err.find("--atol says what may be"), std::string::npos) << usual.err;
  ProgramResult wide = runProgram({"verify", file, "--reference", recorded, "--atol", "0.1"});
  EXPECT_EQ(wide.code, 0) << wide.out;
}

} // namespace
} // namespace kvopt
