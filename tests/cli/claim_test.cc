// The comparison that a rewritten model claims: in the manifest, in the file, and in later checks.
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace kvopt {
namespace {

using testing::HasSubstr;
using testing::Not;

class ClaimTest : public ::testing::Test {
protected:
  void SetUp() override {
    ASSERT_EQ(runProgram({"gen", "llama", "--layers", "1", "--vocab", "64", "-o", first}).code, 0);
  }

  /// Rewrites the first model, and returns the manifest next to the result.
  nlohmann::json rewritten(const std::string& output, std::vector<std::string> options) {
    options.insert(options.begin(), {"rewrite", first, "-o", output});
    const ProgramResult result = runProgram(options);
    EXPECT_EQ(result.code, 0) << result.err;
    std::ifstream file(output.substr(0, output.size() - 5) + ".kv.json");
    return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  }

  TemporaryFolder folder;
  const std::string first = folder.path("first.onnx");
  const std::string second = folder.path("second.onnx");
};

TEST_F(ClaimTest, IsConfirmedByACheckOfTheFiles) {
  for (const std::vector<std::string>& form :
       {std::vector<std::string>{"--to", "ort"}, {"--to", "primitive"}, {"--to", "onnx"}}) {
    const nlohmann::json claim = rewritten(second, form)["comparison"];
    EXPECT_EQ(claim["verdict"], "proved-reduced") << form.back();
    EXPECT_EQ(claim["by"], "check") << form.back();
    const nlohmann::json report = runJson({"check", first, second});
    EXPECT_EQ(report["claimed"]["confirmed"], true) << form.back() << ": " << report["claimed"];
    EXPECT_EQ(claim["certificate_sha256"], report["digest"]) << form.back();
    EXPECT_EQ(claim["before_sha256"], report["before"]["sha256"]) << form.back();
    // The file has the same claim as its manifest.
    EXPECT_EQ(runJson({"inspect", second})["comparison"], claim) << form.back();
  }
  EXPECT_THAT(runProgram({"inspect", second}).out, HasSubstr("claimed to be proved equal"));
}

TEST_F(ClaimTest, IsInTheCertificate) {
  const nlohmann::json claim = rewritten(second, {"--to", "ort"})["comparison"];
  const std::string certificate = folder.path("certificate.json");
  ASSERT_EQ(runProgram({"check", first, second, "--certificate", certificate}).code, 0);
  std::ifstream file(certificate);
  nlohmann::ordered_json stated = nlohmann::ordered_json::parse(file);
  EXPECT_EQ(stated["digest"].get<std::string>(), claim["certificate_sha256"].get<std::string>());
  const ProgramResult verified = runProgram({"check", first, second, "--against", certificate});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("this check finds the same certificate"));
  stated["digest"] = std::string(64, '0');
  std::ofstream(certificate, std::ios::trunc) << stated;
  EXPECT_NE(runProgram({"check", first, second, "--against", certificate}).code, 0);
}

TEST_F(ClaimTest, ForgedIsFound) {
  nlohmann::json manifest = rewritten(second, {"--to", "ort"});
  manifest["comparison"]["certificate_sha256"] = std::string(64, '0');
  const std::string forged = folder.write("forged.json", manifest.dump());
  const ProgramResult result = runProgram({"check", first, second, "--manifest", forged});
  EXPECT_THAT(result.out, HasSubstr("THIS CHECK FINDS ANOTHER CERTIFICATE"));
  // Other fields, and another first model, are other certificates.
  EXPECT_EQ(runJson({"check", first, second, "--manifest", forged, "--seed",
                     "1"})["claimed"]["confirmed"],
            nullptr);
  EXPECT_EQ(runJson({"check", second, second, "--manifest", forged})["claimed"]["confirmed"],
            nullptr);
}

TEST_F(ClaimTest, SaysThatOnlyARunDecided) {
  const nlohmann::json rounded = rewritten(second, {"--to", "kvopt", "--rows", "int8"});
  EXPECT_EQ(rounded["comparison"]["verdict"], "tested");
  EXPECT_EQ(rounded["comparison"]["by"], "quick");
  EXPECT_FALSE(rounded["comparison"].contains("certificate_sha256"));
  EXPECT_THAT(runProgram({"inspect", second}).out,
              HasSubstr("in runs of both models, which is not a proof"));
  EXPECT_EQ(rewritten(second, {"--verify", "full"})["comparison"]["by"], "full");
  EXPECT_FALSE(rewritten(second, {"--verify", "off"}).contains("comparison"));
  EXPECT_THAT(runProgram({"inspect", second}).out, Not(HasSubstr("claimed")));
}

TEST_F(ClaimTest, IsNotCarriedToAnotherRewrite) {
  const nlohmann::json claim = rewritten(second, {"--to", "ort"})["comparison"];
  const std::string third = folder.path("third.onnx");
  ASSERT_EQ(runProgram({"rewrite", second, "-o", third, "--to", "onnx", "--verify", "off"}).code,
            0);
  EXPECT_FALSE(runJson({"inspect", third}).contains("comparison"));
  ASSERT_EQ(runProgram({"rewrite", second, "-o", third, "--to", "onnx"}).code, 0);
  const nlohmann::json next = runJson({"inspect", third})["comparison"];
  EXPECT_NE(next["before_sha256"], claim["before_sha256"]);
  // A model that stays as it is keeps its claim.
  ASSERT_EQ(runProgram({"rewrite", second, "-o", third, "--to", "ort"}).code, 0);
  EXPECT_EQ(runJson({"inspect", third})["comparison"], claim);
}

} // namespace
} // namespace kvopt
