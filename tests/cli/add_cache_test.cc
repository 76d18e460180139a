// kvopt add-cache: what it writes, and how it ends where it cannot.
#include "tests/cli/exported_model.h"

namespace kvopt {
using namespace cli;

namespace {

/// Rows of eight numbers for as many tokens.
std::string tableText(int tokens) {
  std::string table = "0.5";
  for (int i = 1; i < tokens * 8; ++i)
    table += i % 3 == 0 ? ", -0.25" : i % 2 == 0 ? ", 0.75" : ", 0.125";
  return table;
}

/// One layer of attention over whole sequences; its results go through `last`.
std::string modelText(const std::string& last) {
  return R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids) => (float[B, S, 8] logits)
<float[32, 8] table = {)" +
         tableText(32) +
         R"(}, int64[4] heads = {0, 0, 2, 4}, int64[3] rows = {0, 0, 8}, int64 zero = {0}, int64 one = {1}>
{
  extents = Shape (input_ids)
  count = Gather (extents, one)
  range = Range (zero, count, one)
  places = Gather (table, range)
  embedded = Gather (table, input_ids)
  hidden = Add (embedded, places)
  split = Reshape (hidden, heads)
  k = Transpose <perm = [0, 2, 1, 3]> (split)
  q = Neg (k)
  v = Sin (k)
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (q, k, v)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  joined = Reshape (ot, rows)
)" + last +
         "\n}\n";
}

class AddCacheTest : public testing::Test {
protected:
  /// A model that was exported without caches.
  std::string model(const std::string& last) { return exportedModel(modelText(last), folder); }

  TemporaryFolder folder;
  std::string output = folder.path("cached.onnx");
};

TEST_F(AddCacheTest, WritesAModelThatEveryTargetTakes) {
  const std::string path = model("  logits = Tanh (joined)");
  const ProgramResult added = runProgram({"add-cache", path, "-o", output});
  ASSERT_EQ(added.code, 0) << added.err;
  EXPECT_NE(added.out.find("caches of one model only"), std::string::npos) << added.out;
  EXPECT_TRUE(std::filesystem::exists(folder.path("cached.kv.json")));
  EXPECT_EQ(runProgram({"verify", path, output}).code, 0);
  const std::string fused = folder.path("fused.onnx");
  EXPECT_EQ(runProgram({"rewrite", output, "--to", "kvopt", "-o", fused}).code, 0);
  const ProgramResult tokens = runProgram({"run", path, "--tokens", "1,2,3", "--steps", "6"});
  EXPECT_EQ(runProgram({"run", fused, "--tokens", "1,2,3", "--steps", "6", "--capacity", "16"}).out,
            tokens.out);
}

TEST_F(AddCacheTest, WritesTheFormOfATargetAtOnce) {
  const ProgramResult added =
      runProgram({"add-cache", model("  logits = Tanh (joined)"), "-o", output, "--to", "kvopt"});
  ASSERT_EQ(added.code, 0) << added.err;
  EXPECT_NE(added.out.find("for kvopt's runtime (--to kvopt)"), std::string::npos) << added.out;
}

/// A decoder that projects an encoder's results at every step.
const std::string encoderDecoderText = R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, T, 8] encoder_hidden_states) => (float[B, S, 8] logits)
<float[8, 8] table = {)" + tableText(8) +
                                       R"(},
 float[1, 8] scales = {1, 2, 0.5, -1, 3, 0.25, -2, 1}, int64[4] heads = {0, 0, 2, 4}, int64[3] together = {0, 0, 8}>
{
  h = Gather (table, input_ids)
  hr = Reshape (h, heads)
  ht = Transpose <perm = [0, 2, 1, 3]> (hr)
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (ht, ht, ht)
  scaled = Mul (encoder_hidden_states, scales)
  er = Reshape (scaled, heads)
  keys = Transpose <perm = [0, 2, 1, 3]> (er)
  values = Tanh (keys)
  co = ai.kvopt.Sdpa <scale = 0.5> (o, keys, values)
  cot = Transpose <perm = [0, 2, 1, 3]> (co)
  logits = Reshape (cot, together)
})";

TEST_F(AddCacheTest, WritesTheFirstStepBesideTheModel) {
  const std::string path = exportedModel(encoderDecoderText, folder);
  const ProgramResult added = runProgram({"add-cache", path, "-o", output});
  ASSERT_EQ(added.code, 0) << added.err;
  EXPECT_NE(added.out.find("cached.first.onnx"), std::string::npos) << added.out;
  EXPECT_TRUE(std::filesystem::exists(folder.path("cached.first.onnx")));
  EXPECT_EQ(runProgram({"verify", path, output}).code, 0);
  // The first step goes along with the model.
  std::filesystem::create_directory(folder.path("elsewhere"));
  const std::string fused = folder.path("elsewhere/fused.onnx");
  const ProgramResult rewritten = runProgram({"rewrite", output, "--to", "kvopt", "-o", fused});
  ASSERT_EQ(rewritten.code, 0) << rewritten.err;
  EXPECT_TRUE(std::filesystem::exists(folder.path("elsewhere/fused.first.onnx")));
  EXPECT_EQ(runProgram({"verify", path, fused}).code, 0);
  // The encoder's results go through the first step, made up or given.
  for (const char* given : {"random", "ones"}) {
    std::vector<std::string> arguments = {"run",     path, "--tokens", "1,2,3",
                                          "--steps", "6",  "--input",  ""};
    arguments.back() = std::string("encoder_hidden_states=") + given;
    const ProgramResult tokens = runProgram(arguments);
    ASSERT_EQ(tokens.code, 0) << tokens.err;
    arguments[1] = output;
    const ProgramResult withFirstStep = runProgram(arguments);
    EXPECT_EQ(withFirstStep.out, tokens.out) << withFirstStep.err;
    arguments[1] = fused;
    EXPECT_EQ(runProgram(arguments).out, tokens.out);
  }
  const ProgramResult unknown = runProgram(
      {"run", fused, "--tokens", "1,2,3", "--steps", "6", "--input", "encoder_states=ones"});
  EXPECT_EQ(unknown.code, 2) << unknown.out;
  EXPECT_NE(unknown.err.find("encoder_states"), std::string::npos) << unknown.err;
  std::filesystem::remove(folder.path("elsewhere/fused.first.onnx"));
  const ProgramResult alone = runProgram({"verify", path, fused});
  EXPECT_EQ(alone.code, 3);
  EXPECT_NE(alone.err.find("fused.first.onnx"), std::string::npos) << alone.err;
}

TEST_F(AddCacheTest, NamesWhatMixesTokens) {
  const ProgramResult refused =
      runProgram({"add-cache", model("  logits = CumSum (joined, one)"), "-o", output});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("tokens-mixed"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("CumSum"), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(output));
}

TEST_F(AddCacheTest, EndsWithAClearError) {
  const std::string cached = shippedModel("llama_gqa-ts14-eager");
  const std::string text = folder.path("text.onnx");
  std::ofstream(text) << "no model";
  const struct {
    std::vector<std::string> arguments;
    int code;
    const char* part;
  } cases[] = {
      {{"add-cache", cached, "-o", output}, 1, "attention with a cache"},
      {{"add-cache", text, "-o", output}, 3, "text.onnx"},
      {{"add-cache", folder.path("missing.onnx"), "-o", output}, 3, "missing.onnx"},
      {{"add-cache", cached}, 2, "--output"},
      {{"add-cache", cached, "-o", output, "--layers", "0"}, 2, "--layers"},
      {{"add-cache", cached, "-o", output, "--to", "nothing"}, 2, "nothing"},
      {{"add-cache", cached, "-o", output, "--to", "int8"}, 2, "add caches first"},
  };
  for (const auto& [arguments, code, part] : cases) {
    const ProgramResult result = runProgram(arguments);
    EXPECT_EQ(result.code, code) << part << ": " << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(output));
  }
}

} // namespace
} // namespace kvopt
