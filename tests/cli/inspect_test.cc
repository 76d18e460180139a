// kvopt inspect on the models that ship with the project.
#include "tests/cli/cli_fixture.h"

#include <fstream>

namespace kvopt {
using namespace cli;

namespace {

struct Expectation {
  const char* model;
  unsigned sites;
  int queryHeads;
  int keyHeads;
  int width;
  const char* mask;
  double scale;
};

class InspectTest : public testing::TestWithParam<Expectation> {};

TEST_P(InspectTest, EverySiteIsMatchedWithItsFacts) {
  const Expectation& expected = GetParam();
  nlohmann::json json = runJson({"inspect", shippedModel(expected.model)});
  EXPECT_EQ(json["schema"], "kvopt/inspect/1");
  ASSERT_EQ(json["sites"].size(), expected.sites);
  for (const nlohmann::json& site : json["sites"]) {
    EXPECT_EQ(site["status"], "matched");
    EXPECT_EQ(site["kind"], "self");
    EXPECT_EQ(site["q_heads"], expected.queryHeads);
    EXPECT_EQ(site["kv_heads"], expected.keyHeads);
    EXPECT_EQ(site["k_head_dim"], expected.width);
    EXPECT_EQ(site["v_head_dim"], expected.width);
    EXPECT_EQ(site["key_axis"], 2);
    EXPECT_EQ(site["mask"], expected.mask);
    EXPECT_NEAR(site["scale"].get<double>(), expected.scale, 1e-7);
    std::string layer = std::to_string(site["layer"].get<int>());
    EXPECT_EQ(site["past_key"], "past_key_values." + layer + ".key");
    EXPECT_EQ(site["present_value"], "present." + layer + ".value");
  }
  EXPECT_EQ(json["targets"]["kvopt"]["can"], expected.sites);
  const bool isLearned = expected.model == std::string("gpt2-dynamo18-eager");
  EXPECT_EQ(json["context_shift"]["can"], !isLearned);
  EXPECT_EQ(json["context_shift"]["reason"],
            isLearned ? nlohmann::json("position-absolute") : nlohmann::json(nullptr));
  const std::string text = runProgram({"inspect", shippedModel(expected.model)}).out;
  EXPECT_NE(text.find(isLearned ? "context shift: no, position-absolute at 'node_add_13'"
                                : "context shift: yes"),
            std::string::npos)
      << text;
  // What recovery adds is not in the file.
  EXPECT_FALSE(json["opsets"].contains("ai.kvopt"));
  EXPECT_TRUE(json["opsets"].contains("ai.onnx"));
}

INSTANTIATE_TEST_SUITE_P(
    Shipped, InspectTest,
    testing::Values(Expectation{"kjv", 4, 4, 2, 32, "additive", 0.17677669},
                    Expectation{"llama_gqa-ts14-eager", 2, 4, 2, 16, "additive", 0.25},
                    Expectation{"gpt2-dynamo18-eager", 2, 4, 4, 16, "additive", 0.25},
                    Expectation{"qwen2-dynamo23-sdpa", 2, 4, 2, 16, "boolean", 0.25}),
    [](const auto& parameter) {
      std::string name = parameter.param.model;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(InspectCodes, NamesWhatCachesOfMissedAttentionHold) {
  TemporaryFolder folder;
  const std::string path = folder.path("codes.onnx");
  ProgramResult made = runProgram({"gen", "llama", "-o", path, "--spelling", "gqa", "--cache-codes",
                                   "int4", "--vocab", "64", "--kv-heads", "2"});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string text = runProgram({"inspect", path}).out;
  EXPECT_NE(text.find("other caches: 4 of uint8[batch_size, 2, past_sequence_length, 8], 64 B per "
                      "token"),
            std::string::npos)
      << text;
  nlohmann::json json = runJson({"inspect", path});
  ASSERT_EQ(json["other_caches"].size(), 1u);
  EXPECT_EQ(json["other_caches"][0]["count"], 4);
  EXPECT_EQ(json["other_caches"][0]["dtype"], "uint8");
  EXPECT_EQ(json["other_caches"][0]["bytes_per_token"], 64);
  EXPECT_EQ(json["sites"][0]["reason"], "dtype-mix");
  EXPECT_EQ(runJson({"inspect", shippedModel("kjv")})["other_caches"].size(), 0u);
}

TEST(InspectTable, SeveralModelsAreOneTableOfFixedColumns) {
  ProgramResult result =
      runProgram({"inspect", shippedModel("kjv"), shippedModel("gpt2-dynamo18-eager")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(countLines(result.out), 3u) << result.out;
  EXPECT_EQ(result.out.rfind("model ", 0), 0u) << result.out;
  EXPECT_NE(result.out.find("\nkjv  "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\ngpt2-dynamo18-eager  "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("4/2×32"), std::string::npos) << result.out;
  // A row does not depend on the others.
  ProgramResult other = runProgram(
      {"inspect", shippedModel("qwen2-dynamo23-sdpa"), shippedModel("gpt2-dynamo18-eager")});
  std::string row = result.out.substr(result.out.find("\ngpt2"));
  EXPECT_NE(other.out.find(row), std::string::npos) << other.out;
}

TEST(InspectTable, JsonHoldsEveryModel) {
  nlohmann::json json =
      runJson({"inspect", shippedModel("kjv"), shippedModel("gpt2-dynamo18-eager")});
  EXPECT_EQ(json["schema"], "kvopt/inspect/1");
  ASSERT_EQ(json["models"].size(), 2u);
  nlohmann::json alone = runJson({"inspect", shippedModel("kjv")});
  alone.erase("schema");
  EXPECT_EQ(json["models"][0], alone);
}

TEST(InspectTable, AnUnreadableFileIsARowAndExitsWithThree) {
  TemporaryFolder folder;
  std::string missing = folder.path("missing.onnx");
  std::vector<std::string> arguments{"inspect", missing, shippedModel("kjv")};
  ProgramResult result = runProgram(arguments);
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(countLines(result.out), 3u) << result.out;
  EXPECT_NE(result.out.find("unreadable"), std::string::npos) << result.out;
  EXPECT_EQ(countLines(result.err), 1u) << result.err;
  EXPECT_NE(result.err.find(missing), std::string::npos) << result.err;
  nlohmann::json json = runJson(arguments, 3);
  EXPECT_NE(json["models"][0]["error"], "");
  EXPECT_EQ(json["models"][1]["sites"].size(), 4u);
}

TEST(InspectRecommendation, IsTheLastLine) {
  TemporaryFolder folder;
  const auto generated = [&](const std::vector<std::string>& options) {
    const std::string path = folder.path("model.onnx");
    std::vector<std::string> arguments = {"gen"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), {"--vocab", "64", "-o", path});
    EXPECT_EQ(runProgram(arguments).code, 0);
    return path;
  };
  const auto written = [&](const std::string& text) {
    const std::string path = folder.path("model.onnx");
    const std::string source = folder.write("model.onnxtxt", text);
    EXPECT_EQ(runProgram({"opt", source, "--pipeline", "", "-o", path}).code, 0);
    return path;
  };
  const auto expectLast = [&](const std::string& path, const std::string& expected) {
    const std::string out = runProgram({"inspect", path}).out;
    const std::string last = out.substr(out.rfind('\n', out.size() - 2) + 1);
    EXPECT_EQ(last.rfind(expected, 0), 0u) << out;
    const auto json = runJson({"inspect", path})["recommendation"];
    EXPECT_EQ(expected.rfind(json["text"].get<std::string>(), 0), 0u) << json;
  };
  const std::string model = folder.path("model.onnx");
  expectLast(generated({"llama"}), "ONNX Runtime: kvopt rewrite " + model + " -o OUT.onnx\n");
  expectLast(generated({"mla"}),
             "ONNX Runtime 1.24 or newer: kvopt rewrite " + model + " -o OUT.onnx --to onnx\n");
  expectLast(generated({"llama", "--spelling", "gqa"}),
             "ONNX Runtime: nothing to rewrite, for com.microsoft::GroupQueryAttention updates "
             "caches in place; the manifest says how to bind them: kvopt rewrite ");
  expectLast(generated({"llama", "--cache", "none"}),
             "the decoder computes the whole sequence at every step; give it caches: kvopt "
             "add-cache " +
                 model);
  expectLast(written("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                     "f (float[B, 4] x) => (float[B, 4] y) { y = Relu(x) }\n"),
             "no attention found: this is not a decoder; nothing to rewrite\n");
  expectLast(written("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                     "f (float[B, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[B, 4, 6, 6] y)\n"
                     "{ y = Conv(x, w) }\n"),
             "no attention found: this looks like a vision or audio model; nothing to rewrite\n");
  expectLast(written("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                     "f (float[B, 4, S, 16] q, float[B, 4, 16, S] k, float[B, 4, S, 16] v)\n"
                     "=> (float[B, 4, S, 16] y)\n<float scale = {0.25}>\n"
                     "{\n  s = MatMul (q, k)\n  t = Mul (s, scale)\n"
                     "  p = Softmax <axis = -1> (t)\n  y = MatMul (p, v)\n}\n"),
             "attention is not causal and has no caches: this looks like an encoder; nothing to "
             "rewrite (kvopt add-cache is for decoders)\n");
  const std::string rewritten = folder.path("rewritten.onnx");
  ASSERT_EQ(runProgram({"rewrite", generated({"llama"}), "-o", rewritten}).code, 0);
  expectLast(rewritten, "written by kvopt; its manifest says how to drive it: kvopt run ");
}

} // namespace
} // namespace kvopt
