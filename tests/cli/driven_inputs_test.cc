// Decoders whose inputs have names of their own: what kvopt feeds them, and what --input says.
#include "ir/onnx/export.h"
#include "ir/op.h"
#include "ir/text/reader.h"
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

#include <fstream>

namespace kvopt {
using namespace cli;
using namespace ir;

namespace {

using testing::HasSubstr;
using testing::Not;

class DrivenInputsTest : public testing::Test {
protected:
  /// One attention layer of two heads over a growing cache of so many rows. `inputs` are more of
  /// them, `scores` computes m from the scores s, `more` is added to the body.
  std::string decoder(const std::string& inputs, const std::string& scores,
                      const std::string& more = "",
                      const std::string& tokens = "int64[B, S] input_ids",
                      const std::string& rows = "P", const std::string& outputs = "") {
    std::string table;
    for (int i = 0; i < 64; ++i)
      table += (i ? ", " : "") + std::to_string((i * 37 % 64) * 0.03125 - 1.0);
    const std::string name = tokens.substr(tokens.rfind(' ') + 1);
    const std::string text =
        "<ir_version: 8, opset_import: [\"\" : 17]>\ng (" + tokens + inputs + ", float[B, 2, " +
        rows + ", 4] before_k, float[B, 2, " + rows + ", 4] before_v) => (float[B, S, 8] logits, " +
        "float[B, 2, N, 4] after_k, float[B, 2, N, 4] after_v" + outputs +
        ")\n<float[8, 8] table = {" + table +
        "}, int64[4] split = {0, 0, 2, 4}, int64[3] joined = {0, 0, 8}, float lowest = {-1e30}, "
        "float half = {0.5}, int64[1] unit = {1}, int64[1] end = {1000}>\n{\n  embedded = "
        "Gather (table, " +
        name + ")\n" + more + R"(
  heads = Reshape (embedded, split)
  x = Transpose <perm = [0, 2, 1, 3]> (heads)
  after_k = Concat <axis = 2> (before_k, x)
  after_v = Concat <axis = 2> (before_v, x)
  kt = Transpose <perm = [0, 1, 3, 2]> (after_k)
  s = MatMul (x, kt)
)" + scores +
        R"(
  p = Softmax <axis = -1> (m)
  o = MatMul (p, after_v)
  back = Transpose <perm = [0, 2, 1, 3]> (o)
  logits = Reshape (back, joined)
})";
    OpRegistry ops;
    registerAll(ops);
    const std::string path = folder.path("decoder.onnx");
    llvm::cantFail(exportModel(*llvm::cantFail(readText(text, ops)), path));
    return path;
  }

  ProgramResult rewrite(const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"rewrite", path, "-o", written(), "--to", "kvopt"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runProgram(arguments);
  }
  std::string written() { return folder.path("out.onnx"); }
  nlohmann::json manifest() {
    std::ifstream file(folder.path("out.kv.json"));
    return nlohmann::json::parse(file, nullptr, false);
  }

  TemporaryFolder folder;
};

const std::string unmasked = "  m = Identity (s)";

TEST_F(DrivenInputsTest, AnAdditiveMaskUnderAnyName) {
  const std::string path = decoder(", float[B, 1, S, T] fence", "  m = Add (s, fence)");
  const ProgramResult result = rewrite(path, {"--verify", "full"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("OK"));
  const nlohmann::json inputs = manifest()["inputs"];
  ASSERT_EQ(inputs.size(), 1u) << inputs;
  EXPECT_EQ(inputs[0]["input"], "fence");
  EXPECT_EQ(inputs[0]["feed"], "additive_mask");
  EXPECT_EQ(inputs[0]["shape"], nlohmann::json::parse(R"(["batch", 1, "new", "total"])"));
  // What was written is driven by what it says of itself.
  EXPECT_EQ(runProgram({"verify", path, written(), "--pad", "left"}).code, 0);
  EXPECT_EQ(runProgram({"run", written(), "--tokens", "1,2,3", "--steps", "4"}).out,
            runProgram({"run", path, "--tokens", "1,2,3", "--steps", "4"}).out);
}

TEST_F(DrivenInputsTest, PromptsOfUnequalLengthNeedAMaskOfEachRow) {
  const std::vector<std::string> shorter = {"--tokens", "1,2", "--steps", "3"};
  const std::vector<std::string> longer = {"--tokens", "3,4,5,6", "--steps", "3"};
  const auto run = [](const std::string& path, std::vector<std::string> more) {
    more.insert(more.begin(), {"run", path});
    return runProgram(more);
  };
  const std::vector<std::string> both = {"--tokens", "1,2", "--tokens", "3,4,5,6", "--steps", "3"};
  const std::string path = decoder(", float[B, 1, S, T] fence", "  m = Add (s, fence)");
  EXPECT_EQ(run(path, both).out, run(path, shorter).out + run(path, longer).out);
  const ProgramResult refused =
      run(decoder(", float[1, 1, S, T] fence", "  m = Add (s, fence)"), both);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("no mask of each batch row"));
}

TEST_F(DrivenInputsTest, RenamedTokensAndABooleanMask) {
  const std::string path = decoder(", bool[B, 1, S, T] seen", "  m = Where (seen, s, lowest)", "",
                                   "int64[B, S] first_input");
  const ProgramResult result = rewrite(path);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(manifest()["inputs"][0]["feed"], "token_ids");
  EXPECT_EQ(manifest()["inputs"][1]["feed"], "visible_keys");
}

TEST_F(DrivenInputsTest, StatesOfFixedExtents) {
  const std::string path =
      decoder(", float[B, 8, 3] window, float[B, 8] kept", unmasked, R"(
  minus_three = Constant <value_ints = [-3]> ()
  two = Constant <value_ints = [2]> ()
  columns = Transpose <perm = [0, 2, 1]> (embedded)
  longer = Concat <axis = 2> (window, columns)
  next_window = Slice (longer, minus_three, end, two)
  sum = ReduceSum <keepdims = 0> (longer, two)
  decayed = Mul (kept, half)
  next_kept = Add (decayed, sum)
)",
              "int64[B, S] input_ids", "P", ", float[B, 8, 3] next_window, float[B, 8] next_kept");
  const ProgramResult result = rewrite(path, {"--verify", "full"});
  EXPECT_EQ(result.code, 0) << result.err;
  std::vector<std::string> states;
  const nlohmann::json described = manifest();
  for (const nlohmann::json& cache : described["caches"])
    if (cache["policy"] == "state") {
      EXPECT_EQ(cache["role"], "state");
      states.push_back(cache["past"].get<std::string>() + ">" +
                       cache["present"].get<std::string>());
    }
  EXPECT_EQ(states, (std::vector<std::string>{"window>next_window", "kept>next_kept"}));
  EXPECT_EQ(runProgram({"verify", path, path}).code, 0);
  // They are handed from step to step, saved and loaded.
  const std::string saved = folder.path("states.kv");
  EXPECT_EQ(
      runProgram({"run", path, "--tokens", "1,2,3", "--steps", "2", "--save-cache", saved}).code,
      0);
  EXPECT_EQ(runProgram({"run", path, "--tokens", "4", "--steps", "2", "--load-cache", saved}).code,
            0);
  const ProgramResult cropped = runProgram(
      {"run", path, "--tokens", "4", "--steps", "1", "--load-cache", saved, "--crop", "2"});
  EXPECT_NE(cropped.code, 0);
  EXPECT_THAT(cropped.err, HasSubstr("is a recurrent state"));
}

TEST_F(DrivenInputsTest, TheUnknownIsNamedAndCompared) {
  const std::string path = decoder(", float[B, 8] flavor", unmasked, R"(
  scale = Unsqueeze (flavor, unit)
  spiced = Mul (embedded, scale)
)");
  ProgramResult result = rewrite(path);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("(see --input): flavor"));
  EXPECT_THAT(result.out, HasSubstr("OK"));
  result = rewrite(path, {"--input", "flavor=zeros"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("flavor")));
  EXPECT_EQ(runJson({"verify", path, path})["guessed_inputs"][0], "flavor");
}

TEST_F(DrivenInputsTest, AModelThatTakesNoStepIsNotWritten) {
  // A tensor of eight numbers a token does not fit into none.
  const std::string path = decoder(", int64[1] wanted", unmasked,
                                   "  flat = Reshape <allowzero = 1> (embedded, wanted)\n",
                                   "int64[B, S] input_ids", "P", ", float[F] flat");
  ProgramResult result = rewrite(path);
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("checked  NOT: the model as it was read takes no step"));
  EXPECT_THAT(result.out, Not(HasSubstr("OK")));
  EXPECT_THAT(result.err, HasSubstr("nothing was written"));
  EXPECT_THAT(result.err, HasSubstr("--input NAME=VALUE"));
  EXPECT_FALSE(std::filesystem::exists(written()));
  result = runProgram({"rewrite", path, "-o", written(), "--to", "kvopt", "--format", "json"});
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(nlohmann::json::parse(result.out).contains("not_verified"));
  EXPECT_FALSE(std::filesystem::exists(written()));
  EXPECT_EQ(rewrite(path, {"--verify", "off"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(written()));
  EXPECT_EQ(runProgram({"verify", path, path}).code, 3);
}

TEST_F(DrivenInputsTest, OneNameForEveryDynamicAxis) {
  const std::string masked = R"(
  seen = Cast <to = 9> (attention_mask)
  apart = Unsqueeze (seen, unit)
  columns = Unsqueeze (apart, unit)
  m = Where (columns, s, lowest)
)";
  const auto answer = [&](const std::string& path) {
    const ProgramResult result = runProgram({"run", path, "--tokens", "1,2,3", "--steps", "6"});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  const std::string expected = answer(decoder(", int64[B, T] attention_mask", masked));
  const std::string path =
      decoder(", int64[B, S] attention_mask", masked, "", "int64[B, S] input_ids", "S");
  EXPECT_EQ(answer(path), expected);
  const char* sentence = "extents named 'S' are not all equal: axis 1 of 'input_ids' is S";
  EXPECT_THAT(runProgram({"inspect", path}).out, HasSubstr(sentence));
  const ProgramResult result = rewrite(path);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(sentence));
  EXPECT_THAT(result.out, HasSubstr("proved"));
  EXPECT_EQ(answer(written()), expected);
  EXPECT_EQ(runProgram({"verify", path, written()}).code, 0);
  EXPECT_EQ(runJson({"rewrite", path, "-o", written(), "--to", "kvopt"})["unequal_extents"].size(),
            1u);
}

TEST_F(DrivenInputsTest, ACacheThatGrowsFromAFixedExtent) {
  const std::string path = decoder("", unmasked, "", "int64[1, 1] input_ids", "5");
  const ProgramResult verified = runProgram({"verify", path, path});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("5 made-up earlier rows"));
  const nlohmann::json report = runJson({"verify", path, path});
  EXPECT_EQ(report["coverage"]["past_rows"], 5);
  EXPECT_EQ(report["steps"].size(), 1u);
  EXPECT_LE(rewrite(path).code, 1);
}

TEST_F(DrivenInputsTest, RecipesThatMakeNoSense) {
  const std::string path = decoder("", unmasked);
  EXPECT_EQ(runProgram({"verify", path, path, "--input", "x"}).code, 2);
  EXPECT_EQ(runProgram({"verify", path, path, "--input", "x=1", "--input", "x=2"}).code, 2);
  const ProgramResult unknown = runProgram({"verify", path, path, "--input", "missing=1"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--input missing"));
  EXPECT_EQ(rewrite(path, {"--input", "missing=1"}).code, 2);
}

} // namespace
} // namespace kvopt
