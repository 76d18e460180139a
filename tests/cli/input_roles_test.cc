// Inputs of decoders with growing caches: counters, masks, segments and constants.
#include "ir/onnx/export.h"
#include "ir/op.h"
#include "ir/text/reader.h"
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace cli;
using namespace ir;

namespace {

using testing::HasSubstr;

/// One attention layer of one head of four columns over growing caches. The positions of the new
/// tokens select rows of a table.
class InputRolesTest : public testing::Test {
protected:
  struct Parts {
    std::string inputs;   ///< with a comma after each
    std::string position; ///< computes `where` [1, S] or [B, S]; from the extents without it
    std::string more;     ///< computes `x` from `placed`
    std::string hidden;   ///< computes `m` from the scores `s` [B, S, T]
    std::string tokens = "S";
    std::string type = "int64";
    bool hasReservedRow = false; ///< whether the first row of the table of positions is zero
    std::string order;           ///< input that selects batch rows of the new caches
  };

  std::string write(const Parts& parts, const std::string& name) {
    auto numbers = [](int count, int factor, int zeros = 0) {
      std::string list;
      for (int i = 0; i < count; ++i)
        list += (i ? ", " : "") +
                (i < zeros ? "0" : std::to_string((i * i * factor + i * 53) % 97 * 0.03 - 1.44));
      return list;
    };
    const std::string text =
        "<ir_version: 8, opset_import: [\"\" : 17]>\ng (" + parts.type + "[B, " + parts.tokens +
        "] ids, " + parts.inputs + "float[B, P, 4] past_k, float[B, P, 4] past_v) => (float[B, " +
        parts.tokens + ", 16] logits, float[B, T, 4] keys, float[B, T, 4] values)\n" +
        "<float[16, 4] table = {" + numbers(64, 29) + "}, float[40, 4] places = {" +
        numbers(160, 31, parts.hasReservedRow ? 4 : 0) + "}, float[4, 4] kinds = {" +
        numbers(16, 37) + "}, float[4, 16] ends = {" + numbers(64, 41) +
        "}, int64 zero = {0}, int64 one = {1}, int64[1] flat = {-1}, int64[1] axis_one = {1}, "
        "int64[2] row = {1, -1}, float lowest = {-1e9}, float none = {0}, float single = {1}, "
        "float half = {0.5}, int64[1] last = {1000}>\n"
        R"({
  id_shape = Shape (ids)
  count = Gather (id_shape, one)
  past_shape = Shape (past_k)
  past = Gather (past_shape, one)
  total = Add (past, count)
  steps = Range (zero, count, one)
)" +
        (parts.position.empty() ? R"(
  all_places = Range (past, total, one)
  where = Reshape (all_places, row)
)"
                                : parts.position) +
        (parts.type == "float" ? "  whole = Cast <to = 7> (ids)\n" : "  whole = Identity (ids)\n") +
        R"(
  embedded = Gather (table, whole)
  place = Gather (places, where)
  placed = Add (embedded, place)
)" + (parts.more.empty() ? "  x = Identity (placed)\n" : parts.more) +
        R"(
  y = Tanh (x)
  all_keys = Concat <axis = 1> (past_k, x)
  all_values = Concat <axis = 1> (past_v, y)
)" +
        (parts.order.empty() ? "  keys = Identity (all_keys)\n  values = Identity (all_values)\n"
                             : "  keys = Gather (all_keys, " + parts.order +
                                   ")\n  values = Gather (all_values, " + parts.order + ")\n") +
        R"(
  kt = Transpose <perm = [0, 2, 1]> (all_keys)
  s = MatMul (x, kt)
  new_rows = Range (past, total, one)
  columns = Range (zero, total, one)
  queries = Unsqueeze (new_rows, axis_one)
  later = Greater (columns, queries)
  c = Where (later, lowest, s)
)" + (parts.hidden.empty() ? "  m = Identity (c)\n" : parts.hidden) +
        R"(
  p = Softmax <axis = -1> (m)
  o = MatMul (p, all_values)
  sum = Add (o, x)
  logits = MatMul (sum, ends)
})";
    OpRegistry ops;
    registerAll(ops);
    const std::string path = folder.path(name);
    llvm::cantFail(exportModel(*llvm::cantFail(readText(text, ops)), path));
    return path;
  }

  static ProgramResult run(const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"run", path, "--tokens", "3,9,4,1,7", "--steps", "9"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runProgram(arguments);
  }

  /// What the same decoder generates that counts by extents.
  std::string expected() { return expected(Parts()); }
  std::string expected(Parts parts) {
    parts.position.clear();
    return run(write(parts, "plain.onnx")).out;
  }

  TemporaryFolder folder;
};

/// Positions that follow the number in `first`.
const std::string following = R"(
  here = Reshape (first, flat)
  rows = Add (here, steps)
  where = Reshape (rows, row)
)";

TEST_F(InputRolesTest, ACounterStartsAtTheFirstRowOfATable) {
  const std::string tokens = expected();
  for (const char* extents : {"", "[1]", "[B]"}) {
    SCOPED_TRACE(extents);
    const std::string input = "int64" + std::string(extents) + " info, ";
    const std::string lowest = std::string(extents) == "[B]"
                                   ? "  number = ReduceMin <keepdims = 0> (info)\n"
                                   : "  number = Identity (info)\n";
    // Earlier tokens, all tokens, and one less than each.
    EXPECT_EQ(
        run(write({input, lowest + "  first = Identity (number)\n" + following}, "p.onnx")).out,
        tokens);
    EXPECT_EQ(
        run(write({input, lowest + "  first = Sub (number, count)\n" + following}, "t.onnx")).out,
        tokens);
    EXPECT_EQ(
        run(write({input, lowest + "  first = Add (number, one)\n" + following}, "l.onnx")).out,
        tokens);
    EXPECT_EQ(
        run(write({input, lowest + "  less = Sub (number, count)\n  first = Add (less, one)\n" +
                              following},
                  "m.onnx"))
            .out,
        tokens);
  }
}

TEST_F(InputRolesTest, ACounterOfModelsOfSingleTokens) {
  Parts single;
  single.tokens = "1";
  const std::string tokens = expected(single);
  for (const char* first : {"  first = Identity (info)\n", "  first = Sub (info, one)\n",
                            "  first = Add (info, one)\n"}) {
    SCOPED_TRACE(first);
    single.inputs = "int64[1] info, ";
    single.position = first + following;
    EXPECT_EQ(run(write(single, "single.onnx")).out, tokens);
  }
}

TEST_F(InputRolesTest, CountersOfFloatingPointTypes) {
  const std::string tokens = expected();
  for (const char* type : {"float", "double", "float16"})
    for (const char* extents : {"[1]", "[B]"}) {
      SCOPED_TRACE(std::string(type) + extents);
      const std::string path =
          write({std::string(type) + extents + " info, ",
                 "  number = Cast <to = 7> (info)\n  first = ReduceMax <keepdims = 0> (number)\n" +
                     following},
                "floating.onnx");
      EXPECT_EQ(run(path).out, tokens);
      const std::string written = folder.path("written.onnx");
      const ProgramResult rewritten = runProgram({"rewrite", path, "-o", written, "--to", "kvopt"});
      ASSERT_EQ(rewritten.code, 0) << rewritten.err;
      EXPECT_EQ(run(written).out, tokens);
    }
}

TEST_F(InputRolesTest, AMaskIsReadByItsReadersNotByItsName) {
  const std::string tokens = expected();
  Parts parts;
  parts.inputs = "int64[B, T] attention_mask, ";
  parts.hidden = R"(
  visible = Unsqueeze (attention_mask, axis_one)
  isVisible = Cast <to = 9> (visible)
  m = Where (isVisible, c, lowest)
)";
  EXPECT_EQ(run(write(parts, "usual.onnx")).out, tokens);
  parts.hidden = R"(
  hidden = Unsqueeze (attention_mask, axis_one)
  isHidden = Cast <to = 9> (hidden)
  m = Where (isHidden, lowest, c)
)";
  EXPECT_EQ(run(write(parts, "inverted.onnx")).out, tokens);
}

TEST_F(InputRolesTest, AMaskWhoseReadersShowNothingIsTested) {
  const std::string tokens = expected();
  const std::string distances = R"(
  hidden = Unsqueeze (attention_mask, axis_one)
  number = Cast <to = 1> (hidden)
)";
  // In each, 1 hides, whatever analysis makes of it.
  const std::string computed = distances + R"(
  thousand = Neg (lowest)
  square = Mul (thousand, lowest)
  far = Mul (number, square)
  m = Add (c, far)
)";
  const std::string logarithm = distances + R"(
  shown = Sub (single, number)
  far = Log (shown)
  m = Add (c, far)
)";
  const std::string compared = distances + R"(
  halved = Sub (number, half)
  isHidden = Greater (halved, none)
  m = Where (isHidden, lowest, c)
)";
  const std::string power = distances + R"(
  twice = Add (number, number)
  even = Mul (twice, twice)
  far = Mul (even, lowest)
  m = Add (c, far)
)";
  Parts parts;
  parts.inputs = "int64[B, T] attention_mask, ";
  for (const std::string& hidden : {computed, logarithm, compared, power}) {
    parts.hidden = hidden;
    EXPECT_EQ(run(write(parts, "model.onnx")).out, tokens) << hidden;
  }
  // Positions that a mask of hidden tokens counts.
  parts.hidden.clear();
  parts.position = R"(
  shown = Sub (one, attention_mask)
  counted = CumSum (shown, one)
  every = Sub (counted, one)
  new_part = Neg (count)
  first_new = Reshape (new_part, flat)
  where = Slice (every, first_new, last, axis_one)
)";
  EXPECT_EQ(run(write(parts, "counted.onnx")).out, tokens);
  // A mask that hides nothing is doubted.
  parts.position.clear();
  parts.hidden = distances + "  raised = Mul (number, half)\n  m = Add (c, raised)\n";
  const ProgramResult doubtful = run(write(parts, "none.onnx"));
  EXPECT_EQ(doubtful.code, 0) << doubtful.err;
  EXPECT_THAT(doubtful.err, HasSubstr("what 'attention_mask' is fed may be wrong"));
}

TEST_F(InputRolesTest, ANumberThatCouldBeAnyIsDoubted) {
  Parts parts;
  parts.tokens = "1";
  parts.inputs = "int64[1] number, ";
  parts.more = R"(
  after = Add (number, steps)
  kind = Gather (table, after)
  x = Add (placed, kind)
)";
  const ProgramResult counted = run(write(parts, "counted.onnx"));
  EXPECT_THAT(counted.err, HasSubstr("what 'number' is fed may be wrong")) << counted.out;
  // Not if the user says it.
  const ProgramResult told = run(folder.path("counted.onnx"), {"--input", "number=total_length"});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_EQ(told.err.find("may be wrong"), std::string::npos) << told.err;
}

TEST_F(InputRolesTest, PositionsAfterARowOfZerosAreDoubted) {
  Parts parts;
  parts.inputs = "int64[B, S] position_ids, ";
  parts.position = "  where = Identity (position_ids)\n";
  const ProgramResult usual = run(write(parts, "usual.onnx"));
  EXPECT_EQ(usual.err.find("may be wrong"), std::string::npos) << usual.err;
  parts.hasReservedRow = true;
  const ProgramResult reserved = run(write(parts, "reserved.onnx"));
  EXPECT_EQ(reserved.code, 0) << reserved.err;
  EXPECT_THAT(reserved.err,
              HasSubstr("what 'position_ids' is fed may be wrong: the first token reads a row "
                        "of zeros"));
}

TEST_F(InputRolesTest, ATextIsOneSegment) {
  Parts parts;
  parts.inputs = "int64[B, S] token_type_ids, ";
  parts.more = "  kind = Gather (kinds, token_type_ids)\n  x = Add (placed, kind)\n";
  const std::string path = write(parts, "segments.onnx");
  const ProgramResult zeros = run(path, {"--input", "token_type_ids=zeros"});
  ASSERT_EQ(zeros.code, 0) << zeros.err;
  EXPECT_EQ(run(path).out, zeros.out);
}

TEST_F(InputRolesTest, AConstantOfTheUserIsOneInTheManifest) {
  Parts parts;
  parts.inputs = "int64[1] lang, ";
  parts.more = "  kind = Gather (kinds, lang)\n  x = Add (placed, kind)\n";
  const std::string path = write(parts, "language.onnx"), written = folder.path("written.onnx");
  const ProgramResult third = run(path, {"--input", "lang=3"});
  ASSERT_EQ(third.code, 0) << third.err;
  const ProgramResult rewritten =
      runProgram({"rewrite", path, "-o", written, "--to", "kvopt", "--input", "lang=3"});
  ASSERT_EQ(rewritten.code, 0) << rewritten.err;
  EXPECT_EQ(run(written).out, third.out);
  EXPECT_NE(run(written, {"--input", "lang=1"}).out, third.out);
}

TEST_F(InputRolesTest, AnInputTakesThePrompt) {
  Parts parts;
  parts.type = "float";
  const ProgramResult result = run(write(parts, "numbers.onnx"));
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("no input takes token ids"));
}

TEST_F(InputRolesTest, PaddingDoesNotChangeAPrompt) {
  const std::vector<std::string> prompts = {"--tokens", "3,9,4,1,7", "--tokens",
                                            "5,2",      "--steps",   "5"};
  auto of = [&](const std::string& path) {
    std::vector<std::string> arguments = {"run", path};
    arguments.insert(arguments.end(), prompts.begin(), prompts.end());
    return runProgram(arguments);
  };
  Parts parts;
  parts.inputs = "int64[B, T] attention_mask, ";
  parts.hidden = R"(
  visible = Unsqueeze (attention_mask, axis_one)
  isVisible = Cast <to = 9> (visible)
  m = Where (isVisible, c, lowest)
)";
  const ProgramResult byExtents = of(write(parts, "extents.onnx"));
  EXPECT_NE(byExtents.code, 0) << byExtents.out;
  EXPECT_THAT(byExtents.err, HasSubstr("padding changes the scores of prompt 2"));
  parts.inputs += "int64[B, S] position_ids, ";
  parts.position = "  where = Identity (position_ids)\n";
  const ProgramResult byPositions = of(write(parts, "positions.onnx"));
  EXPECT_EQ(byPositions.code, 0) << byPositions.err;
  // Batch rows stay in their order.
  parts.inputs += "int64[B] rows_of_beams, ";
  parts.order = "rows_of_beams";
  EXPECT_EQ(of(write(parts, "beams.onnx")).out, byPositions.out);
  // The prompt hides padding, and the steps after it do not.
  parts.hidden = R"(
  visible = Unsqueeze (attention_mask, axis_one)
  isVisible = Cast <to = 9> (visible)
  isOld = Less (columns, past)
  isShown = Or (isVisible, isOld)
  m = Where (isShown, c, lowest)
)";
  const ProgramResult inPromptsOnly = of(write(parts, "prompts.onnx"));
  EXPECT_NE(inPromptsOnly.code, 0) << inPromptsOnly.out;
  EXPECT_EQ(inPromptsOnly.out, "");
  EXPECT_THAT(inPromptsOnly.err, HasSubstr("padding changes the scores of prompt 2"));
}

} // namespace

} // namespace kvopt
