// The comparison that a rewritten model claims: in the manifest, in the file, and in later checks.
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace kvopt {
namespace {

using testing::HasSubstr;
using testing::Not;

class ClaimTest : public ::testing::Test {
protected:
  void SetUp() override {
    ASSERT_EQ(runProgram({"gen", "llama", "--layers", "1", "--vocab", "64", "--hidden", "16",
                          "--heads", "2", "--intermediate", "16", "-o", first})
                  .code,
              0);
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
  EXPECT_EQ(result.code, 1) << "although the models are equal";
  // A claim about another first model is neither confirmed nor refuted.
  EXPECT_EQ(runJson({"check", second, second, "--manifest", forged})["claimed"]["confirmed"],
            nullptr);
}

TEST_F(ClaimTest, IsConfirmedWithAnyFields) {
  rewritten(second, {"--to", "ort"});
  std::set<std::string> digests;
  std::set<unsigned> moduli;
  for (const char* seed : {"0", "1", "4294967295"}) {
    const nlohmann::json report = runJson({"check", first, second, "--seed", seed});
    EXPECT_EQ(report["claimed"]["confirmed"], true) << seed;
    EXPECT_EQ(report["fields"]["seed"], std::stoul(seed));
    digests.insert(report["digest"]);
    moduli.insert(report["fields"]["p"].get<unsigned>());
  }
  EXPECT_EQ(digests.size(), 1u);
  EXPECT_EQ(moduli.size(), 3u);
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

TEST_F(ClaimTest, VerifyRepeatsIt) {
  nlohmann::json claim = rewritten(second, {"--to", "ort"})["comparison"];
  const std::vector<std::string> run = {"--prompt", "2", "--chunks", "1", "--steps", "1"};
  const auto verify = [&](const std::string& model) {
    std::vector<std::string> arguments = {"verify", model, second};
    arguments.insert(arguments.end(), run.begin(), run.end());
    return arguments;
  };
  const ProgramResult result = runProgram(verify(first));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("claimed: proved equal to the model with SHA-256"));
  EXPECT_THAT(result.out, Not(HasSubstr("another one")));
  EXPECT_THAT(runProgram(verify(second)).out, HasSubstr("the first model here is another one"));
  claim["about_first"] = true;
  EXPECT_EQ(runJson(verify(first))["claimed"], claim);
  // A model without a claim, and a request for one model.
  ASSERT_EQ(runProgram({"verify", second, first, "--steps", "1"}).code, 0);
  EXPECT_FALSE(runJson({"verify", second, first, "--steps", "1"}).contains("claimed"));
  EXPECT_THAT(runProgram({"verify", second}).err, HasSubstr("kvopt inspect MODEL"));
}

/// The claim that a model's metadata has; null without one.
nlohmann::json claimIn(const std::string& model) {
  const nlohmann::json json = runJson({"inspect", model});
  return json.contains("comparison") ? json["comparison"] : nlohmann::json();
}

TEST_F(ClaimTest, EditsOfOptDropIt) {
  const nlohmann::json claim = rewritten(second, {"--to", "primitive"})["comparison"];
  const std::string third = folder.path("third.onnx");
  const auto opt = [&](const std::string& input, const std::string& pipeline) {
    return runProgram({"opt", input, "-o", third, "--pipeline", pipeline}).code;
  };
  for (const char* pipeline : {"", "infer-shapes"}) {
    ASSERT_EQ(opt(second, pipeline), 0);
    EXPECT_EQ(claimIn(third), claim) << pipeline;
  }
  const std::string raises = "infer-shapes,normalize,raise-attention";
  ASSERT_EQ(opt(second, raises), 0);
  EXPECT_EQ(claimIn(third), nullptr);
  // The rest of the manifest stays.
  EXPECT_EQ(runJson({"verify", first, third})["equal"], true);
  // The same holds for models as text.
  const ProgramResult text = runProgram({"opt", second, "--elements", "all"});
  const std::string asText = folder.write("second.onnxtxt", text.out);
  ASSERT_EQ(opt(asText, ""), 0);
  EXPECT_EQ(claimIn(third), claim);
  ASSERT_EQ(opt(asText, raises), 0);
  EXPECT_EQ(claimIn(third), nullptr);
  EXPECT_THAT(text.out, HasSubstr("before_sha256"));
  EXPECT_THAT(runProgram({"opt", second, "--pipeline", raises}).out,
              Not(HasSubstr("before_sha256")));
}

TEST_F(ClaimTest, ReducedModelsLoseIt) {
  nlohmann::ordered_json manifest = nlohmann::ordered_json::parse(R"({
    "schema": "kvopt/manifest/1", "target": "none", "contract": "growing",
    "capacity": {"symbol": "", "value": null}, "caches": [], "lengths": [],
    "comparison": {"verdict": "tested", "by": "quick", "before_sha256": "0"}})");
  const std::string claimed = manifest.dump();
  // A JSON string is a string of the textual form, too.
  const std::string text = folder.write("m.onnxtxt", R"(
<ir_version: 8, opset_import: ["" : 17], metadata_props: ["kvopt.manifest": )" +
                                                         nlohmann::json(claimed).dump() + R"(]>
g (float[N] x) => (float[N] y)
{
  a = Tanh (x)
  b = Erf (a)
  y = Exp (b)
})");
  const std::string model = folder.path("m.onnx");
  ASSERT_EQ(runProgram({"opt", text, "--pipeline", "", "-o", model}).code, 0);
  EXPECT_THAT(folder.read("m.onnx"), HasSubstr("comparison"));
  folder.write("m.kv.json", claimed);
  const std::string small = folder.path("small.onnx");
  const auto reduce = [&](const std::string& condition) {
    const std::string command = "f={}; test -s ${f%.onnx}.kv.json && " + condition;
    return runProgram({"reduce", model, "--while", command, "-o", small}).code;
  };
  ASSERT_EQ(reduce("grep -q Erf $f && grep -q kvopt.manifest $f"), 0);
  EXPECT_THAT(folder.read("small.onnx"), Not(HasSubstr("comparison")));
  EXPECT_THAT(folder.read("small.onnx"), HasSubstr("kvopt.manifest"));
  manifest.erase("comparison");
  EXPECT_EQ(nlohmann::ordered_json::parse(folder.read("small.kv.json")), manifest);
  // A model that nothing can be removed from stays the same file.
  ASSERT_EQ(reduce("cmp -s $f " + model), 0);
  EXPECT_EQ(folder.read("small.onnx"), folder.read("m.onnx"));
  EXPECT_EQ(folder.read("small.kv.json"), claimed);
}

/// Rewrites `model` without and with a comparison: the claim goes, or is about this model.
void expectClaimReplaced(std::vector<std::string> command, const std::string& model,
                         const std::string& output) {
  const nlohmann::json claim = claimIn(model);
  ASSERT_TRUE(claim.is_object());
  command.insert(command.begin() + 1, {model, "-o", output});
  command.insert(command.end(), {"--verify", "off"});
  const ProgramResult result = runProgram(command);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(claimIn(output), nullptr) << command.front();
  command.back() = "auto";
  ASSERT_EQ(runProgram(command).code, 0);
  const nlohmann::json next = claimIn(output);
  ASSERT_TRUE(next.is_object()) << command.front();
  EXPECT_NE(next["before_sha256"], claim["before_sha256"]);
}

TEST_F(ClaimTest, OtherWritersReplaceIt) {
  const std::string third = folder.path("third.onnx");
  rewritten(second, {"--to", "primitive"});
  expectClaimReplaced({"rewrite", "--to", "ort"}, second, third);
  expectClaimReplaced({"rewrite", "--to", "pyramid:4", "--capacity", "8"}, second, third);
  ASSERT_EQ(
      runProgram({"gen", "llama", "--layers", "1", "--vocab", "64", "--cache", "none", "-o", first})
          .code,
      0);
  rewritten(second, {"--to", "primitive"});
  expectClaimReplaced({"add-cache"}, second, third);
}

TEST_F(ClaimTest, CopiesKeepIt) {
  const nlohmann::json claim = rewritten(second, {"--to", "ort"})["comparison"];
  for (const char* placement : {"copy", "inline"}) {
    const std::string third = folder.path("third.onnx");
    ASSERT_EQ(
        runProgram({"rewrite", second, "-o", third, "--to", "ort", "--external-data", placement})
            .code,
        0);
    EXPECT_EQ(claimIn(third), claim) << placement;
  }
}

} // namespace
} // namespace kvopt
