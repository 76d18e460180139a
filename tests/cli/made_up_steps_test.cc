// The steps that verification makes up: token ids that tables have entries for, batch rows,
// padding where a step has one token, and earlier rows where their number is fixed.
#include "support/format.h"
#include "tests/cli/cli_fixture.h"

#include <cmath>
#include <filesystem>
#include <fstream>

namespace kvopt {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string table(int rows) {
  std::string text;
  for (int i = 0; i < rows * 16; ++i)
    text += formatted("{}{:.3f}", i == 0 ? "" : ", ", std::sin(1.7 * i));
  return formatted("float[{}, 16] table{} = {{{}}}", rows, rows, text);
}

/// What differs between the decoders of one layer.
struct Spelling {
  std::string ids = "[B, S]";
  /// Makes h [B,S,16] of the ids.
  std::string embed = "  h = Gather (table20, input_ids)\n";
  std::string batch = "B";
  std::string past = "P";
  /// Extents of the mask; empty: there is none.
  std::string mask = "";
  /// Makes logits of y [B,S,16].
  std::string scores = "  logits = Identity (y)\n";
};

std::string decoder(const Spelling& spelling) {
  const bool isMasked = !spelling.mask.empty();
  return formatted(
      R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64{0} input_ids, {1}float[{2}, 2, {3}, 8] past_k, float[{2}, 2, {3}, 8] past_v)
  => (float[] logits, float[] present_k, float[] present_v)
<int64[4] heads = {{0, 0, 2, 8}}, int64[3] together = {{0, 0, 16}}, int64[2] axes = {{1, 2}}, int64[1] minus = {{-1}},
 int64[1] four = {{4}}, int64[1] second = {{1}}, int64 zero = {{0}}, int64 one = {{1}}, int64[4] offsets = {{0, 5, 9, 14}},
 {4}, {5}>
{{
{6}  hr = Reshape (h, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (hr)
  v = Tanh (q)
{7}  present_k = Concat <axis = 2> (past_k, q)
  present_v = Concat <axis = 2> (past_v, v)
  o = ai.kvopt.Sdpa <scale = 0.35, causal = 1> (q, present_k, present_v{8})
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  y = Reshape (ot, together)
{9}}}
)",
      spelling.ids, isMasked ? "int64" + spelling.mask + " attention_mask, " : "", spelling.batch,
      spelling.past, table(20), table(9), spelling.embed,
      isMasked ? "  flags = Cast <to = 9> (attention_mask)\n  visible = Unsqueeze (flags, axes)\n"
               : "",
      isMasked ? ", visible" : "", spelling.scores);
}

class MadeUpSteps : public testing::Test {
protected:
  std::string model(const Spelling& spelling) {
    std::ofstream(folder.path("model.onnxtxt")) << decoder(spelling);
    return read(folder.path("model.onnxtxt"));
  }

  /// A file of the model that a text describes.
  std::string read(const std::string& text) {
    const std::string path = folder.path("model.onnx");
    EXPECT_EQ(runProgram({"opt", text, "--pipeline", "", "-o", path}).code, 0);
    return path;
  }

  ProgramResult rewritten(const std::string& path, std::vector<std::string> options) {
    std::vector<std::string> arguments{"rewrite",  path,   "-o", folder.path("out.onnx"),
                                       "--verify", "quick"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return runProgram(arguments);
  }

  /// Rewrites the model, which is verified, and compares it with itself and with what was written.
  void expectVerified(const std::string& path, const std::vector<std::string>& options,
                      const std::string& covered = "") {
    const ProgramResult written = rewritten(path, options);
    EXPECT_EQ(written.code, 0) << written.err;
    EXPECT_THAT(written.out, HasSubstr("OK"));
    EXPECT_THAT(written.out, HasSubstr(covered));
    for (const std::string& other : {path, folder.path("out.onnx")}) {
      const ProgramResult verified = runProgram({"verify", path, other});
      EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
      EXPECT_THAT(verified.out, HasSubstr(covered));
    }
  }

  TemporaryFolder folder;
};

TEST_F(MadeUpSteps, FeedEachCodebookIdsThatItsTableHas) {
  const Spelling joined = {
      .ids = "[B, S, 4]",
      .embed = "  axis2 = Constant <value_ints = [2]> ()\n  a = Add (input_ids, offsets)\n"
               "  e = Gather (table20, a)\n  h = ReduceSum <keepdims = 0> (e, axis2)\n"};
  const Spelling apart = {.ids = "[B, 2, S]",
                          .embed = "  a = Gather <axis = 1> (input_ids, zero)\n"
                                   "  b = Gather <axis = 1> (input_ids, one)\n"
                                   "  c = Gather (table20, a)\n  d = Gather (table9, b)\n"
                                   "  h = Add (c, d)\n"};
  for (const Spelling& spelling : {joined, apart}) {
    expectVerified(model(spelling), {"--to", "kvopt"});
    expectVerified(model(spelling), {"--to", "ort-gqa"});
  }
}

TEST_F(MadeUpSteps, HaveARowForEachCodebookOfABatchRow) {
  const Spelling shared = {
      .ids = "[R, S]",
      .embed = "  n = Shape <start = 1> (input_ids)\n"
               "  s = Concat <axis = 0> (minus, four, n)\n  r = Reshape (input_ids, s)\n"
               "  e = Gather (table20, r)\n  h = ReduceSum <keepdims = 0> (e, second)\n"};
  const std::string path = model(shared);
  const ProgramResult verified = runProgram({"verify", path, path});
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("batch 1, 3"));
}

TEST_F(MadeUpSteps, HidePaddingThatIsFedTokenByToken) {
  const Spelling single = {.ids = "[B, 1]", .mask = "[B, \"P + 1\"]"};
  expectVerified(model(single), {"--to", "kvopt"}, "padding left");
}

TEST_F(MadeUpSteps, FollowRowsOfAFixedNumber) {
  const Spelling fixed = {.ids = "[1, 1]", .batch = "1", .past = "15", .mask = "[1, 16]"};
  const std::string path = model(fixed);
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--to", "kvopt"},
                                             {"--to", "kvopt", "--cache-dtype", "float16"},
                                             {"--to", "primitive", "--cache-dtype", "bfloat16"},
                                             {"--to", "int8", "--capacity", "64"},
                                             {"--to", "int4", "--capacity", "64"},
                                             {"--to", "int8-blocks:8", "--capacity", "64"}})
    expectVerified(path, options, "padding left");
}

TEST_F(MadeUpSteps, AreNoTextForCalibration) {
  const std::string path = model({.ids = "[1, 1]", .batch = "1", .past = "15", .mask = "[1, 16]"});
  std::ofstream(folder.path("tokens.txt")) << "1 2 3 4 5 6 7 8";
  const ProgramResult refused =
      rewritten(path, {"--to", "ort-gqa", "--cache-dtype", "int8", "--calibration-tokens",
                       folder.path("tokens.txt")});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("every step of the model follows 15 earlier tokens"));
}

TEST_F(MadeUpSteps, SayThatDynamicQuantizationMixesTokens) {
  Spelling quantized;
  quantized.scores = "  codes, scale, point = DynamicQuantizeLinear (y)\n"
                     "  logits = DequantizeLinear (codes, scale, point)\n";
  const std::string path = model(quantized);
  const std::string first = folder.path("first.onnx");
  std::filesystem::copy_file(path, first);
  quantized.embed = "  g = Gather (table20, input_ids)\n  h = Sin (g)\n";
  const ProgramResult verified = runProgram({"verify", first, model(quantized)});
  EXPECT_EQ(verified.code, 1);
  EXPECT_THAT(verified.out, HasSubstr("DIFFERENT: dynamic quantization has one scale over all"));
  EXPECT_EQ(runProgram({"verify", first, first}).code, 0);
}

/// A window's caches that were full when the model was exported: `rows` are those that it keeps.
std::string fullWindow(const std::string& rows) {
  return R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, 2, 5, 8] past_k, float[B, 2, 5, 8] past_v)
  => (float[] logits, float[B, 2, 5, 8] present_k, float[B, 2, 5, 8] present_v)
<int64[4] heads = {0, 0, 2, 8}, int64[3] together = {0, 0, 16}, int64[1] five = {-5}, int64[1] end = {9223372036854775807},
 int64[1] two = {2}, )" +
         table(20) + R"(>
{
  h = Gather (table20, input_ids)
  hr = Reshape (h, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (hr)
  v = Tanh (q)
  keys = Concat <axis = 2> (past_k, q)
  values = Concat <axis = 2> (past_v, v)
)" + rows +
         R"(  o = ai.kvopt.Sdpa <scale = 0.35, causal = 1, window = 6> (q, keys, values)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  logits = Reshape (ot, together)
}
)";
}

TEST_F(MadeUpSteps, FollowAFullWindowWhereTheModelReadsRowsOfNoToken) {
  const std::string rows = fullWindow("  present_k = Slice (keys, five, end, two)\n"
                                      "  present_v = Slice (values, five, end, two)\n");
  std::ofstream(folder.path("window.onnxtxt")) << rows;
  const std::string path = read(folder.path("window.onnxtxt"));
  expectVerified(path, {"--to", "ring"}, "5 made-up earlier rows");
  expectVerified(path, {"--to", "int8-ring"}, "5 made-up earlier rows");
  // A difference is found all the same.
  const std::string ring = folder.path("out.onnx");
  ASSERT_EQ(rewritten(path, {"--to", "ring"}).code, 0);
  std::string other = rows;
  other.replace(other.find("scale = 0.35"), 12, "scale = 0.36");
  std::ofstream(folder.path("window.onnxtxt")) << other;
  EXPECT_EQ(runProgram({"verify", read(folder.path("window.onnxtxt")), ring}).code, 1);
}

TEST_F(MadeUpSteps, StartFromEmptyCachesWhereTheirRowsAreHidden) {
  const std::string path = folder.path("model.onnx");
  ASSERT_EQ(runProgram({"gen", "window", "--window", "8", "--cache", "last-rows", "--layers", "2",
                        "--hidden", "16", "--heads", "2", "--vocab", "32", "-o", path})
                .code,
            0);
  const ProgramResult written = rewritten(path, {"--to", "ring"});
  EXPECT_EQ(written.code, 0);
  EXPECT_THAT(written.out, Not(HasSubstr("made-up earlier rows")));
}

class RoundedParts : public MadeUpSteps {};

/// Caches whose parts are split, or whose heads share an axis with their columns.
TEST_F(RoundedParts, AreComparedWithoutRounding) {
  const std::string stacked =
      read(std::string(KVOPT_SOURCE_DIR) + "/tests/mutants/stacked.onnxtxt");
  for (const char* target : {"kvopt", "primitive", "onnx23"}) {
    const ProgramResult written = rewritten(stacked, {"--to", target, "--cache-dtype", "float16"});
    EXPECT_EQ(written.code, 0) << written.err;
    EXPECT_THAT(written.out, HasSubstr("OK"));
    EXPECT_THAT(written.out, Not(HasSubstr("not verified")));
  }
}

TEST_F(RoundedParts, MayBeOfAModelThatWasRewrittenBefore) {
  const std::string path = model({.mask = "[B, \"P + S\"]"});
  ASSERT_EQ(rewritten(path, {"--to", "primitive"}).code, 0);
  const std::string before = folder.path("before.onnx");
  std::filesystem::rename(folder.path("out.onnx"), before);
  for (const char* target : {"kvopt", "primitive"}) {
    const ProgramResult written = rewritten(before, {"--to", target, "--cache-dtype", "float16"});
    EXPECT_EQ(written.code, 0) << written.err;
    EXPECT_THAT(written.out, HasSubstr("OK"));
  }
}

/// A decoder whose caches are laid out in its own way.
std::string ownCaches(const std::string& inputs, const std::string& keys,
                      const std::string& values) {
  return R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, )" +
         inputs + R"() => (float[] logits, float[] present_k, float[] present_v)
<int64[4] heads = {0, 0, 2, 8}, int64[3] together = {0, 0, 16}, )" +
         table(20) + R"(>
{
  h = Gather (table20, input_ids)
  hr = Reshape (h, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (hr)
  v = Tanh (q)
  vr = Tanh (h)
)" + keys +
         values +
         R"(  o = ai.kvopt.Sdpa <scale = 0.35, causal = 1> (q, keys, values)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  logits = Reshape (ot, together)
}
)";
}

TEST_F(RoundedParts, MayHaveHeadsAndColumnsOnOneAxis) {
  std::ofstream(folder.path("folded.onnxtxt")) << ownCaches(
      "float[B, P, 16] past_k, float[B, P, 16] past_v",
      "  present_k = Concat <axis = 1> (past_k, h)\n  kr = Reshape (present_k, heads)\n"
      "  keys = Transpose <perm = [0, 2, 1, 3]> (kr)\n",
      "  present_v = Concat <axis = 1> (past_v, vr)\n  wr = Reshape (present_v, heads)\n"
      "  values = Transpose <perm = [0, 2, 1, 3]> (wr)\n");
  const ProgramResult written =
      rewritten(read(folder.path("folded.onnxtxt")), {"--to", "kvopt", "--cache-dtype", "float16"});
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_THAT(written.out, HasSubstr("OK"));
}

TEST_F(RoundedParts, AreRefusedWhereOnlyOneOfKeysAndValuesWouldBeRounded) {
  std::string text = ownCaches("float16[B, 2, P, 8] past_k, float[B, 2, P, 8] past_v",
                               "  half = Cast <to = 10> (q)\n"
                               "  present_k = Concat <axis = 2> (past_k, half)\n"
                               "  keys = Cast <to = 1> (present_k)\n",
                               "  present_v = Concat <axis = 2> (past_v, v)\n"
                               "  values = Identity (present_v)\n");
  text.replace(text.find("float[] present_k"), 17, "float16[] present_k");
  std::ofstream(folder.path("half.onnxtxt")) << text;
  const ProgramResult refused =
      rewritten(read(folder.path("half.onnxtxt")), {"--to", "kvopt", "--cache-dtype", "float16"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("dtype-mix"));
}

} // namespace
} // namespace kvopt
