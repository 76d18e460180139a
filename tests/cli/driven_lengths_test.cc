// Inputs that count tokens, fed by what reads them: the tokens must be those of a model without
// any.
#include "ir/manifest/manifest.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
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

class DrivenLengthsTest : public testing::Test {
protected:
  std::string write(const std::string& text, const std::string& name = "decoder.onnx") {
    OpRegistry ops;
    registerAll(ops);
    const std::string path = folder.path(name);
    llvm::cantFail(exportModel(*llvm::cantFail(readText(text, ops)), path));
    return path;
  }

  /// One layer of two heads that reads its cache as `body` says, which computes o [B, 2, S, 4] from
  /// x [B, 2, S, 4]; `inputs` are those beside the token ids.
  static std::string decoder(const std::string& inputs, const std::string& outputs,
                             const std::string& body) {
    std::string table;
    std::string scores;
    for (int i = 0; i < 64; ++i) {
      table += (i ? ", " : "") + std::to_string((i * i * 13 + i * 7) % 61 * 0.05 - 1.5);
      scores += (i ? ", " : "") + std::to_string((i * i * 29 + i * 11) % 67 * 0.05 - 1.6);
    }
    return "<ir_version: 10, opset_import: [\"\" : 24, \"com.microsoft\" : 1]>\n"
           "g (int64[B, S] input_ids" +
           inputs + ") => (float[B, S, 8] logits" + outputs + ")\n<float[8, 8] table = {" + table +
           "}, float[8, 8] head = {" + scores +
           "}, int64[4] split = {0, 0, 2, 4}, int64[3] joined = {0, 0, 8}, float lowest = {-1e30}, "
           "int64 one = {1}, int64[1] axis_one = {1}, int64[1] axis_two = {2}, int64 none = {0}, "
           "int64[1] last = {1000}>\n{\n"
           "  embedded = Gather (table, input_ids)\n"
           "  heads = Reshape (embedded, split)\n"
           "  x = Transpose <perm = [0, 2, 1, 3]> (heads)\n"
           "  size = Shape <start = 1, end = 2> (input_ids)\n" +
           body +
           "\n  back = Transpose <perm = [0, 2, 1, 3]> (o)\n"
           "  flat = Reshape (back, joined)\n"
           "  logits = MatMul (flat, head)\n}\n";
  }

  /// The same layer over a growing cache.
  static std::string growing() {
    return decoder(", float[B, 2, P, 4] k, float[B, 2, P, 4] v",
                   ", float[B, 2, T, 4] next_k, float[B, 2, T, 4] next_v",
                   "  o, next_k, next_v = Attention <is_causal = 1> (x, x, x, , k, v)");
  }

  std::string tokensOf(const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"run", path, "--tokens", "3,4,5", "--steps", "6"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = runProgram(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }

  nlohmann::json lengthsOf(const std::string& path) {
    EXPECT_EQ(runProgram({"rewrite", path, "-o", folder.path("out.onnx"), "--to", "onnx24"}).code,
              0);
    std::ifstream file(folder.path("out.kv.json"));
    const nlohmann::json manifest = nlohmann::json::parse(file);
    nlohmann::json feeds;
    for (const nlohmann::json& length : manifest["lengths"])
      feeds[length["input"].get<std::string>()] = length["feed"];
    return feeds;
  }

  TemporaryFolder folder;
};

const std::string buffers = ", float[B, 2, 24, 4] k, float[B, 2, 24, 4] v";
const std::string updated = ", float[B, 2, 24, 4] next_k, float[B, 2, 24, 4] next_v";

TEST_F(DrivenLengthsTest, WhereToWriteAndHowManyRowsAreValid) {
  const std::string expected = tokensOf(write(growing(), "growing.onnx"));
  const std::string causal = write(decoder(", int64[B] at, int64[B] valid" + buffers, updated, R"(
  next_k = TensorScatter <axis = 2> (k, x, at)
  next_v = TensorScatter <axis = 2> (v, x, at)
  o = Attention <is_causal = 1> (x, next_k, next_v, , , , valid)
)"));
  EXPECT_EQ(tokensOf(causal), expected);
  EXPECT_EQ(tokensOf(causal, {"--input", "valid=total_length@batch"}), expected);
  EXPECT_NE(tokensOf(causal, {"--input", "valid=past_length@batch"}), expected);
  EXPECT_EQ(lengthsOf(causal),
            nlohmann::json({{"at", "past_length_per_batch"}, {"valid", "total_length_per_batch"}}));
  EXPECT_EQ(tokensOf(folder.path("out.onnx")), expected);

  // A mask in the place of the attribute, and the inputs the other way around.
  const std::string masked = write(decoder(", int64[B] valid, int64[B] at" + buffers, updated, R"(
  next_k = TensorScatter <axis = 2> (k, x, at)
  next_v = TensorScatter <axis = 2> (v, x, at)
  count = Squeeze (size)
  new = Range (none, count, one)
  column = Unsqueeze (new, axis_one)
  first = Unsqueeze (at, axis_one)
  place = Unsqueeze (first, axis_two)
  queries = Add (column, place)
  capacity = Constant <value_int = 24> ()
  keys = Range (none, capacity, one)
  seen = LessOrEqual (keys, queries)
  mask = Unsqueeze (seen, axis_one)
  o = Attention (x, next_k, next_v, mask, , , valid)
)"));
  EXPECT_EQ(tokensOf(masked), expected);
  ASSERT_EQ(
      runProgram({"rewrite", masked, "-o", folder.path("plain.onnx"), "--to", "primitive"}).code,
      0);
  EXPECT_EQ(tokensOf(folder.path("plain.onnx")), expected);
}

TEST_F(DrivenLengthsTest, OneLengthFromWhichTheOtherFollows) {
  const std::string expected = tokensOf(write(growing(), "growing.onnx"));
  for (const auto& [input, computed, at, valid] :
       {std::tuple("at", "all = Add (at, size)", "at", "all"),
        std::tuple("all", "at = Sub (all, size)", "at", "all")}) {
    const std::string body = std::string("  ") + computed + R"(
  next_k = TensorScatter <axis = 2> (k, x, )" +
                             at + R"()
  next_v = TensorScatter <axis = 2> (v, x, )" +
                             at + R"()
  o = Attention <is_causal = 1> (x, next_k, next_v, , , , )" +
                             valid + ")";
    const std::string path =
        write(decoder(std::string(", int64[B] ") + input + buffers, updated, body));
    EXPECT_EQ(tokensOf(path), expected) << input;
  }
}

TEST_F(DrivenLengthsTest, AnInputForTwoLengthsIsRefused) {
  const std::string path = write(decoder(", int64[B] at" + buffers, updated, R"(
  next_k = TensorScatter <axis = 2> (k, x, at)
  next_v = TensorScatter <axis = 2> (v, x, at)
  o = Attention <is_causal = 1> (x, next_k, next_v, , , , at)
)"));
  const ProgramResult result = runProgram({"run", path, "--tokens", "1", "--steps", "2"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("TensorScatter"));
  EXPECT_THAT(result.err, HasSubstr("(Attention)"));
}

TEST_F(DrivenLengthsTest, AManifestThatFeedsAnotherLengthIsAContradiction) {
  const std::string path = write(decoder(", int64[B] at, int64[B] valid" + buffers, updated, R"(
  next_k = TensorScatter <axis = 2> (k, x, at)
  next_v = TensorScatter <axis = 2> (v, x, at)
  o = Attention <is_causal = 1> (x, next_k, next_v, , , , valid)
)"));
  ASSERT_EQ(lengthsOf(path)["valid"], "total_length_per_batch");
  const std::string written = folder.path("out.onnx");
  EXPECT_EQ(runProgram({"verify", path, written}).code, 0);
  OpRegistry ops;
  registerAll(ops);
  auto model = llvm::cantFail(importModel(written, ops));
  std::ifstream file(folder.path("out.kv.json"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Manifest manifest = llvm::cantFail(parseManifest(text));
  for (ManifestLength& length : manifest.lengths)
    if (length.input == "valid")
      length.feed = LengthFeed::PastLengthPerBatch;
  model->setMetadata(manifestKey, manifest.json());
  const std::string edited = folder.path("edited.onnx");
  llvm::cantFail(exportModel(*model, edited));
  const ProgramResult result = runProgram({"verify", path, edited});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("it is fed past_length_per_batch"));
}

TEST_F(DrivenLengthsTest, RowsThatAHostMayDrop) {
  const std::string expected = tokensOf(write(growing(), "growing.onnx"));
  for (const char* end : {"last", "axis_end"}) {
    const std::string path = write(decoder(
        ", int64[1] dropped, float[B, 2, P, 4] k, float[B, 2, P, 4] v",
        ", float[B, 2, T, 4] next_k, float[B, 2, T, 4] next_v",
        "  axis_end = Shape <start = 2, end = 3> (k)\n  old_k = Slice (k, dropped, " +
            std::string(end) + ", axis_two)\n  old_v = Slice (v, dropped, " + end +
            ", axis_two)\n  o, next_k, next_v = Attention <is_causal = 1> (x, x, x, , old_k, "
            "old_v)"));
    EXPECT_EQ(tokensOf(path), expected) << end;
  }
}

TEST_F(DrivenLengthsTest, ATriangleThatTheFirstStepSwitchesOn) {
  const std::string expected = tokensOf(write(growing(), "growing.onnx"));
  std::string triangle;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 16; ++column)
      triangle += std::string(row + column ? ", " : "") + (column > row ? "-128" : "0");
  for (const char* type : {"int8", "int64"}) {
    std::string text = decoder(std::string(", int64[1] history, int64[1] added, ") + type +
                                   "[1] attention_mask, float[B, 2, P, 4] k, float[B, 2, P, 4] v",
                               ", float[B, 2, T, 4] next_k, float[B, 2, T, 4] next_v", R"(
  all = Add (history, added)
  next_k = Concat <axis = 2> (k, x)
  next_v = Concat <axis = 2> (v, x)
  zero = Constant <value_ints = [0]> ()
  axis_zero = Constant <value_ints = [0]> ()
  some = Slice (triangle, zero, added, axis_zero)
  these = Slice (some, zero, all, axis_one)
  on = Cast <to = 1> (attention_mask)
  mask = Mul (these, on)
  seen = Attention (x, next_k, next_v, mask)
  here = Slice (nothing, history, all, axis_zero)
  o = Add (seen, here)
)");
    text.insert(text.find("<float[8, 8] table") + 1,
                "float[16, 16] triangle = {" + triangle +
                    "}, float[16, 1] nothing = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, ");
    const std::string path = write(text);
    EXPECT_EQ(tokensOf(path), expected) << type;
    // Nothing of the triangle is right for several tokens after others.
    EXPECT_EQ(tokensOf(path, {"--chunk", "2"}), expected) << type;
    EXPECT_NE(tokensOf(path, {"--input", "attention_mask=1@1"}), expected) << type;
  }
}

TEST_F(DrivenLengthsTest, EmbeddedTokensUnderAnyName) {
  const auto embedded = [](std::string text) {
    for (const auto& [from, to] :
         {std::pair("int64[B, S] input_ids", "float[B, S, 8] xs"),
          std::pair("Gather (table, input_ids)", "Tanh (xs)"), std::pair("(input_ids)", "(xs)")})
      text.replace(text.find(from), std::string(from).size(), to);
    return text;
  };
  const char* const outputs = ", float[B, 2, T, 4] next_k, float[B, 2, T, 4] next_v";
  const std::string masked = decoder(
      ", bool[B, 1, S, T] seen, float[B, E, 8] other, float[B, 2, P, 4] k, float[B, 2, P, 4] v",
      outputs, R"(
  attended, next_k, next_v = Attention (x, x, x, seen, k, v)
  mean = ReduceMean <keepdims = 1> (other)
  o = Add (attended, mean)
)");
  for (const std::string& text : {embedded(growing()), embedded(masked)}) {
    const std::string path = write(text);
    const std::string written = folder.path("out.onnx");
    const ProgramResult result =
        runProgram({"rewrite", path, "-o", written, "--to", "kvopt", "--verify", "full"});
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("prompt 1, 5, 33"));
    std::ifstream file(folder.path("out.kv.json"));
    const nlohmann::json manifest = nlohmann::json::parse(file);
    EXPECT_EQ(manifest["inputs"][0]["input"], "xs");
    EXPECT_EQ(manifest["inputs"][0]["shape"], nlohmann::json::parse(R"(["batch", "new", 8])"));
  }
}

/// A packed GroupQueryAttention whose rows advance by what `counted` makes of the mask.
std::string countingDecoder(const std::string& counted) {
  return R"(
  taken = Cast <to = 6> (attention_mask)
)" + counted +
         R"(
  width = Shape <start = 1, end = 2> (attention_mask)
  whole = Cast <to = 6> (width)
  rows = Reshape (embedded, joined)
  y, next_k, next_v = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (rows, rows, rows, k, v, lengths, whole)
  apart = Reshape (y, split)
  o = Transpose <perm = [0, 2, 1, 3]> (apart)
)";
}

TEST_F(DrivenLengthsTest, PromptsOfUnequalLengthWhereTheMaskIsCounted) {
  const char* const inputs =
      ", int64[B, T] attention_mask, float[B, 2, P, 4] k, float[B, 2, P, 4] v";
  const char* const outputs = ", float[B, 2, T, 4] next_k, float[B, 2, T, 4] next_v";
  const auto run = [&](const std::string& path, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", path, "--steps", "6"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runProgram(arguments);
  };
  for (const char* counted : {R"(
  sum = ReduceSum <keepdims = 0> (taken, axis_one)
  single = Constant <value = int32 {1}> ()
  lengths = Sub (sum, single)
)",
                              R"(
  running = CumSum (taken, one)
  until = Constant <value_ints = [-1]> ()
  behind = Slice (running, until, last, axis_one)
  sum = Squeeze (behind, axis_one)
  minus = Constant <value = int32 {-1}> ()
  lengths = Add (sum, minus)
)"}) {
    const std::string path = write(decoder(inputs, outputs, countingDecoder(counted)));
    const std::string expected =
        run(path, {"--tokens", "7,1,2"}).out + run(path, {"--tokens", "4,5,6,7,1,2,3"}).out;
    const std::vector<std::string> both = {"--tokens", "7,1,2", "--tokens", "4,5,6,7,1,2,3"};
    EXPECT_EQ(run(path, both).out, expected);
    for (const char* target : {"kvopt", "onnx24", "primitive", "int8"}) {
      const std::string written = folder.path("out.onnx");
      const ProgramResult result =
          runProgram({"rewrite", path, "-o", written, "--to", target, "--verify", "full"});
      ASSERT_EQ(result.code, 0) << target << result.out << result.err;
      std::ifstream file(folder.path("out.kv.json"));
      EXPECT_EQ(nlohmann::json::parse(file)["padding"], "right") << target;
      if (llvm::StringRef(target) != "int8") {
        EXPECT_EQ(run(written, both).out, expected) << target;
      }
      std::vector<std::string> inParts = both;
      inParts.insert(inParts.end(), {"--chunk", "2"});
      const ProgramResult refused = run(written, inParts);
      EXPECT_EQ(refused.code, 2) << target;
      EXPECT_THAT(refused.err, HasSubstr("padding on the right only"));
    }
  }
}

/// Four numbers from 0 on, of which the host drops the first one in the first step.
std::string recording(double firstNumber) {
  return "<ir_version: 10, opset_import: [\"\" : 24]>\ng () => ()\n<"
         "float[1, 1, 2, 1] \"step0_q2/input/x\" = {1, 2}, int64[1] \"step0_q2/input/dropped\" = "
         "{1}, float[1, 1, 1, 1] \"step0_q2/input/past\" = {9}, float[1, 1, 2, 1] "
         "\"step0_q2/output/present\" = {" +
         std::to_string(firstNumber) +
         ", 2}, float[1, 1, 1, 1] \"step1_q1/input/x\" = {3}, int64[1] \"step1_q1/input/dropped\" "
         "= {0}, float[1, 1, 2, 1] \"step1_q1/input/past\" = {1, 2}, float[1, 1, 3, 1] "
         "\"step1_q1/output/present\" = {1, 2, 3}>\n{\n}\n";
}

TEST_F(DrivenLengthsTest, WhatWasRecordedIsFed) {
  const std::string path = write(
      "<ir_version: 10, opset_import: [\"\" : 24]>\ng (float[1, 1, S, 1] x, int64[1] dropped, "
      "float[1, 1, P, 1] past) => (float[1, 1, T, 1] present)\n<int64[1] axis = {2}, int64[1] "
      "last = {1000}>\n{\n  kept = Slice (past, dropped, last, axis)\n  present = Concat "
      "<axis = 2> (kept, x)\n}\n");
  const std::string right = write(recording(1), "right.onnx");
  const std::string wrong = write(recording(5), "wrong.onnx");
  const ProgramResult result = runProgram({"verify", path, "--reference", right});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("each is run with all that was recorded for it"));
  EXPECT_EQ(runProgram({"verify", path, "--reference", wrong}).code, 1);
}

} // namespace
} // namespace kvopt
