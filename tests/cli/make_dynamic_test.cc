// kvopt make-dynamic: what it writes, and how it ends where it cannot.
#include "tests/cli/exported_model.h"

namespace kvopt {
using namespace cli;

namespace {

/// One layer that was exported for one token after five. `position` makes `angle` [1, 1, 8].
std::string exportedText(const std::string& position) {
  std::string table = "0.5";
  for (int i = 1; i < 32 * 8; ++i)
    table += i % 3 == 0 ? ", -0.25" : i % 2 == 0 ? ", 0.75" : ", 0.125";
  return R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[1, 1] input_ids, int64[1, 1] position_ids, float[1, 2, 5, 4] past_key, float[1, 2, 5, 4] past_value)
  => (float[1, 1, 8] logits, float[1, 2, 6, 4] present_key, float[1, 2, 6, 4] present_value)
<float[32, 8] table = {)" +
         table +
         R"(}, int64[4] heads = {1, 1, 2, 4}, int64[3] rows = {1, 1, 8}, int64[1] third = {2}>
{
)" + position +
         R"(
  embedded = Gather (table, input_ids)
  hidden = Add (embedded, angle)
  split = Reshape (hidden, heads)
  k = Transpose <perm = [0, 2, 1, 3]> (split)
  q = Neg (k)
  v = Sin (k)
  present_key = Concat <axis = 2> (past_key, k)
  present_value = Concat <axis = 2> (past_value, v)
  o = ai.kvopt.Sdpa <scale = 0.5> (q, present_key, present_value)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  joined = Reshape (ot, rows)
  logits = Tanh (joined)
}
)";
}

const char* const angleOfPosition = R"(
  number = Cast <to = 1> (position_ids)
  column = Unsqueeze (number, third)
  frequencies = Constant <value_floats = [1.0, 0.5, 0.25, 0.125, 0.1, 0.05, 0.02, 0.01]> ()
  turned = Mul (column, frequencies)
  angle = Cos (turned)
)";
const char* const storedAngle = R"(
  angle = Constant <value_floats = [0.5, 0.25, 0.5, 0.125, 0.5, 0.25, 0.5, 0.125]> ()
)";

class MakeDynamicTest : public testing::Test {
protected:
  std::string model(const std::string& position) {
    return exportedModel(exportedText(position), folder);
  }

  TemporaryFolder folder;
  std::string output = folder.path("dynamic.onnx");
};

TEST_F(MakeDynamicTest, ReplacesAClaim) {
  const std::string fixed = folder.path("fixed.onnx");
  ASSERT_EQ(runProgram({"rewrite", model(angleOfPosition), "-o", fixed, "--to", "onnx23"}).code, 0);
  const nlohmann::json claim = runJson({"inspect", fixed})["comparison"];
  ASSERT_TRUE(claim.is_object());
  ASSERT_EQ(runProgram({"make-dynamic", fixed, "-o", output}).code, 0);
  EXPECT_NE(runJson({"inspect", output})["comparison"]["before_sha256"], claim["before_sha256"]);
  ASSERT_EQ(runProgram({"make-dynamic", fixed, "-o", output, "--verify", "off"}).code, 0);
  EXPECT_FALSE(runJson({"inspect", output}).contains("comparison"));
}

TEST_F(MakeDynamicTest, WritesAModelThatTakesAnyStep) {
  const std::string path = model(angleOfPosition);
  EXPECT_NE(runProgram({"run", path, "--tokens", "1,2,3", "--steps", "4"}).code, 0);
  const ProgramResult made = runProgram({"make-dynamic", path, "-o", output});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("symbols to batch, sequence and past"), std::string::npos) << made.out;
  EXPECT_TRUE(std::filesystem::exists(folder.path("dynamic.kv.json")));
  EXPECT_EQ(runProgram({"verify", path, output}).code, 0);
  const ProgramResult fixed =
      runProgram({"rewrite", path, "-o", folder.path("fixed.onnx"), "--to", "kvopt"});
  EXPECT_NE(fixed.out.find("'past_key' was exported for 5 earlier rows: kvopt make-dynamic"),
            std::string::npos)
      << fixed.out;
  const std::string fused = folder.path("fused.onnx");
  EXPECT_EQ(runProgram({"make-dynamic", path, "-o", fused, "--to", "kvopt"}).code, 0);
  const ProgramResult tokens = runProgram({"run", output, "--tokens", "1,2,3", "--steps", "6"});
  EXPECT_EQ(tokens.code, 0) << tokens.err;
  EXPECT_EQ(runProgram({"run", fused, "--tokens", "1,2,3", "--steps", "6", "--capacity", "16"}).out,
            tokens.out);
}

TEST_F(MakeDynamicTest, SaysInJsonWhatBecameASymbol) {
  const ProgramResult made =
      runProgram({"make-dynamic", model(storedAngle), "-o", output, "--format", "json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const auto json = nlohmann::json::parse(made.out);
  EXPECT_EQ(json["symbols"]["freed"], "batch");
  EXPECT_NE(json["symbols"]["fixed_because"].get<std::string>().find("positions of tokens"),
            std::string::npos)
      << json.dump(2);
}

TEST_F(MakeDynamicTest, EndsWithAClearError) {
  const std::string text = folder.path("text.onnx");
  std::ofstream(text) << "no model";
  const std::string path = model(storedAngle);
  const struct {
    std::vector<std::string> arguments;
    int code;
    const char* says;
  } cases[] = {
      {{"make-dynamic", path, "-o", output, "--to", "kvopt"}, 1, "needs room for more"},
      {{"make-dynamic", text, "-o", output}, 3, "text.onnx"},
      {{"make-dynamic", folder.path("missing.onnx"), "-o", output}, 3, "missing.onnx"},
      {{"make-dynamic", path}, 2, "--output"},
      {{"make-dynamic", path, "-o", output, "--layers", "0"}, 2, "--layers"},
      {{"make-dynamic", path, "-o", output, "--to", "nothing"}, 2, "nothing"},
  };
  for (const auto& each : cases) {
    const ProgramResult result = runProgram(each.arguments);
    EXPECT_EQ(result.code, each.code) << result.err;
    EXPECT_NE(result.err.find(each.says), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(output));
  }
}

} // namespace
} // namespace kvopt
