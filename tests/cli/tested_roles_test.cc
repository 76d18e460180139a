// Inputs whose roles the graph does not show: roles are tested by runs before models are driven.
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

/// One attention layer of two heads over caches of twelve rows, and what differs between models.
struct Spelling {
  std::string inputs; ///< after the token ids, with commas before them
  /// Computes the rows `row` [S] that new tokens are written to, and `m` from the scores `s` [1, 2,
  /// S, 12].
  std::string body;
  std::string tokens = "S";
  std::string outputs = "";
  /// The keys and values of a step, `all_k` and `all_v`, and the caches after it.
  std::string join = R"(
  row_list = Reshape (row, to_rows)
  new_shape = Shape (x)
  indices = Expand (row_list, new_shape)
  after_k = ScatterElements <axis = 2> (before_k, indices, x)
  after_v = ScatterElements <axis = 2> (before_v, indices, y)
  all_k = Identity (after_k)
  all_v = Identity (after_v)
)";
  std::string rows = "12";
};

class TestedRolesTest : public testing::Test {
protected:
  std::string write(const Spelling& spelling, const std::string& name = "decoder.onnx") {
    std::string table;
    for (int i = 0; i < 128; ++i)
      table += (i ? ", " : "") + std::to_string((i * i * 29 + i * 53) % 97 * 0.03 - 1.44);
    std::string places;
    for (int i = 0; i < 12; ++i)
      places += (i ? ", " : "") + std::to_string(i);
    const std::string cache = "float[1, 2, " + spelling.rows + ", 4] ";
    const std::string text =
        "<ir_version: 8, opset_import: [\"\" : 17]>\ng (int64[1, " + spelling.tokens +
        "] input_ids" + spelling.inputs + ", " + cache + "before_k, " + cache +
        "before_v) => (float[1, " + spelling.tokens + ", 16] logits, " + cache + "after_k, " +
        cache + "after_v" + spelling.outputs + ")\n<float[16, 8] table = {" + table +
        "}, int64[4] split = {0, 0, 2, 4}, int64[3] joined = {0, 0, 8}, float lowest = {-1e9}, "
        "float nothing = {0}, int64[4] to_rows = {1, 1, -1, 1}, int64[2] to_column = {-1, 1}, "
        "int64[1] flat = {-1}, int64[1, 12] places = {" +
        places + "}, int64 zero = {0}, int64 one = {1}, int64[1] ones = {1}, int64 four = {4}, " +
        "float floating_zero = {0}, float floating_four = {4}, int64[1] twelve = {12}, " +
        "int64[1] two = {2}, int64[1] thirteen = {13}>\n{\n  embedded = Gather (table, input_ids)\n"
        "  heads = Reshape (embedded, split)\n"
        "  x = Transpose <perm = [0, 2, 1, 3]> (heads)\n  y = Tanh (x)\n" +
        spelling.body.substr(0, spelling.body.find("# scores")) + spelling.join +
        "  kt = Transpose <perm = [0, 1, 3, 2]> (all_k)\n  s = MatMul (x, kt)\n" +
        spelling.body.substr(spelling.body.find("# scores") + 8) + R"(
  p = Softmax <axis = -1> (m)
  o = MatMul (p, all_v)
  back = Transpose <perm = [0, 2, 1, 3]> (o)
  attended = Reshape (back, joined)
  sum = Add (attended, embedded)
  turned = Transpose <perm = [1, 0]> (table)
  logits = MatMul (sum, turned)
})";
    OpRegistry ops;
    registerAll(ops);
    const std::string path = folder.path(name);
    llvm::cantFail(exportModel(*llvm::cantFail(readText(text, ops)), path));
    return path;
  }

  static ProgramResult run(const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"run", path, "--tokens", "3,9,4,1", "--steps", "6"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runProgram(arguments);
  }

  /// What decoders with documented inputs generate, with a window if there is one.
  std::string expected(bool isWindowed) {
    const std::string body = "  row = Reshape (position_ids, flat)\n# scores" + seen(isWindowed);
    return run(write({", int64[1, S] position_ids", body}, "plain.onnx")).out;
  }

  /// Hides later rows, and earlier ones than the last four.
  static std::string seen(bool isWindowed) {
    return std::string("\n  column = Reshape (row, to_column)\n  until = LessOrEqual (places, "
                       "column)\n") +
           (isWindowed ? "  least = Sub (column, four)\n  from = Greater (places, least)\n"
                         "  seen = And (until, from)\n"
                       : "  seen = Identity (until)\n") +
           "  m = Where (seen, s, lowest)\n";
  }

  TemporaryFolder folder;
};

/// Rows [S] that follow the number in `here`.
const std::string following = R"(
  id_shape = Shape (input_ids)
  count = Gather (id_shape, one)
  steps = Range (zero, count, one)
  first = Reshape (here, flat)
  row = Add (first, steps)
# scores)";

TEST_F(TestedRolesTest, PositionsThatAreComparedByTheirDistance) {
  const std::string distances = R"(
  column = Reshape (row, to_column)
  distance = Sub (column, places)
  near = Less (distance, four)
  reached = GreaterOrEqual (distance, zero)
  seen = And (near, reached)
  m = Where (seen, s, lowest)
)";
  const std::string floating = R"(
  column = Reshape (row, to_column)
  whole = Sub (column, places)
  distance = Cast <to = 1> (whole)
  near = Less (distance, floating_four)
  reached = GreaterOrEqual (distance, floating_zero)
  seen = And (near, reached)
  m = Where (seen, s, lowest)
)";
  const std::string tokens = expected(true);
  for (const std::string& scores : {distances, floating}) {
    EXPECT_EQ(run(write({", int64[S] here", "  row = Identity (here)\n# scores" + scores})).out,
              tokens);
    EXPECT_EQ(
        run(write({", int64[1, S] here", "  row = Reshape (here, flat)\n# scores" + scores})).out,
        tokens);
    EXPECT_EQ(run(write({", int64 here", following + scores})).out, tokens);
    EXPECT_EQ(run(write({", int64[1] here", following + scores})).out, tokens);
    EXPECT_EQ(run(write({", int64[1] here", following + scores, "1"})).out, tokens);
  }
}

TEST_F(TestedRolesTest, NumbersThatCountFromElsewhere) {
  const std::string tokens = expected(false);
  const std::string scores = seen(false);
  // The last row that was written: -1 at first.
  const std::string before = R"(
  here = Add (last, ones))" + following +
                             scores;
  EXPECT_EQ(run(write({", int64[1] last", before})).out, tokens);
  EXPECT_EQ(run(write({", int64[1] last", before, "1"})).out, tokens);
  // The end of the step.
  const std::string end = R"(
  id_lengths = Shape (input_ids)
  new = Gather (id_lengths, one)
  here = Sub (last, new))" +
                          following + scores;
  EXPECT_EQ(run(write({", int64[1] last", end})).out, tokens);
  // Narrower integers, and floats.
  const std::string narrow = R"(
  here = Cast <to = 7> (last))" +
                             following + scores;
  EXPECT_EQ(run(write({", int32[1] last", narrow})).out, tokens);
  EXPECT_EQ(run(write({", float[1] last", narrow})).out, tokens);
}

/// One row is cut off the front when one is joined at the end.
Spelling shiftRegister(const std::string& inputs, const std::string& scores) {
  Spelling spelling{inputs, "# scores" + scores, "1"};
  spelling.join = R"(
  all_k = Concat <axis = 2> (before_k, x)
  all_v = Concat <axis = 2> (before_v, y)
  after_k = Slice (all_k, ones, thirteen, two)
  after_v = Slice (all_v, ones, thirteen, two)
)";
  return spelling;
}

TEST_F(TestedRolesTest, ValidRowsAtTheEnd) {
  const std::string tokens = expected(false);
  EXPECT_EQ(
      run(write(shiftRegister(", bool[1, 1, 1, 13] seen", "\n  m = Where (seen, s, lowest)"))).out,
      tokens);
  EXPECT_EQ(
      run(write(shiftRegister(", bool[1, 1, 1, 13] seen", "\n  m = Where (seen, lowest, s)"))).out,
      tokens);
  EXPECT_EQ(run(write(shiftRegister(", float[1, 1, 1, 13] bias", "\n  m = Add (s, bias)"))).out,
            tokens);
  const std::string documented = R"(
  bits = Cast <to = 9> (attention_mask)
  m = Where (bits, s, lowest))";
  const std::string path = write(shiftRegister(", int64[1, 13] attention_mask", documented));
  EXPECT_EQ(run(path).out, tokens);
  // Other programs read it in the manifest.
  const std::string written = folder.path("out.onnx");
  const ProgramResult rewritten = runProgram({"rewrite", path, "-o", written, "--to", "primitive"});
  ASSERT_EQ(rewritten.code, 0) << rewritten.err;
  std::ifstream file(folder.path("out.kv.json"));
  const nlohmann::json inputs = nlohmann::json::parse(file)["inputs"];
  ASSERT_EQ(inputs.size(), 1u) << inputs;
  EXPECT_EQ(inputs[0]["feed"], "visible_keys_at_end");
  EXPECT_EQ(run(written).out, tokens);
}

TEST_F(TestedRolesTest, PositionsOfRowsThatTheModelKeeps) {
  const std::string kept = R"(
  row = Reshape (position_ids, flat)
  held_after = ScatterElements <axis = 0> (held, row, row)
# scores
  column = Reshape (row, to_column)
  late = LessOrEqual (held_after, column)
  real = GreaterOrEqual (held_after, zero)
  seen = And (late, real)
  m = Where (seen, s, lowest)
)";
  const std::string path =
      write({", int64[1, S] position_ids, int64[12] held", kept, "S", ", int64[12] held_after"});
  EXPECT_EQ(run(path).out, expected(false));
  EXPECT_EQ(run(path, {"--state", "held=-1"}).out, expected(false));
  EXPECT_NE(run(path, {"--state", "held=0"}).out, expected(false));
  const ProgramResult unknown = run(path, {"--state", "before=1"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--state before: the model has no such state"));
}

TEST_F(TestedRolesTest, ANumberThatMattersIsNotMadeUp) {
  Spelling voiced{", int64[1, S] position_ids, int64[1] speaker",
                  "  row = Reshape (position_ids, flat)\n# scores" + seen(false)};
  voiced.join = R"(
  voice = Cast <to = 1> (speaker)
  voices = Add (y, voice)
  row_list = Reshape (row, to_rows)
  new_shape = Shape (x)
  indices = Expand (row_list, new_shape)
  after_k = ScatterElements <axis = 2> (before_k, indices, x)
  after_v = ScatterElements <axis = 2> (before_v, indices, voices)
  all_k = Identity (after_k)
  all_v = Identity (after_v)
)";
  const std::string path = write(voiced);
  const ProgramResult result = run(path);
  EXPECT_EQ(result.code, 1) << result.out;
  EXPECT_THAT(result.err, HasSubstr("'speaker'"));
  EXPECT_THAT(result.err, HasSubstr("--input speaker="));
  EXPECT_EQ(run(path, {"--input", "speaker=3"}).code, 0);
  const ProgramResult rewritten =
      runProgram({"rewrite", path, "-o", folder.path("out.onnx"), "--to", "primitive"});
  EXPECT_EQ(rewritten.code, 1);
  EXPECT_THAT(rewritten.out + rewritten.err, HasSubstr("--input speaker="));
}

} // namespace

} // namespace kvopt
