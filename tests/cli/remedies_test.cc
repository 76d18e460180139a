// Options that a refusal names are those that help.
#include "tests/cli/decoder_text.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace cli;

namespace {

using testing::HasSubstr;
using testing::Not;

ProgramResult refusalOf(const TemporaryFolder& folder, const std::vector<LayerSpelling>& layers) {
  const std::string model = writeDecoder(folder, "m", layers);
  ProgramResult refused =
      runProgram({"rewrite", model, "-o", folder.path("out.onnx"), "--to", "kvopt"});
  EXPECT_EQ(refused.code, 1) << refused.out;
  return refused;
}

TEST(Remedies, AreNamedWhereTheyHelp) {
  const TemporaryFolder folder;
  const ProgramResult refused =
      refusalOf(folder, {LayerSpelling::Plain, LayerSpelling::Escapes, LayerSpelling::Plain});
  EXPECT_THAT(refused.err, HasSubstr("--require any rewrites 2 layers"));
  EXPECT_THAT(refused.err, Not(HasSubstr("--padding none")));
  EXPECT_THAT(refused.err, Not(HasSubstr("--one-branch")));
  EXPECT_EQ(runProgram({"rewrite", folder.path("m.onnx"), "-o", folder.path("out.onnx"), "--to",
                        "kvopt", "--require", "any", "--verify", "off"})
                .code,
            0);
  const ProgramResult json =
      runProgram({"rewrite", folder.path("m.onnx"), "-o", folder.path("o.onnx"), "--to", "kvopt",
                  "--format", "json"});
  const auto remedies = nlohmann::json::parse(json.out)["remedies"];
  ASSERT_EQ(remedies.size(), 1U);
  EXPECT_EQ(remedies[0]["option"], "--require any");
  EXPECT_EQ(remedies[0]["layers"], 2);
}

TEST(Remedies, AreNotNamedWhereTheyDoNot) {
  const TemporaryFolder folder;
  const ProgramResult refused = refusalOf(folder, {LayerSpelling::Escapes, LayerSpelling::Escapes});
  EXPECT_THAT(refused.err, HasSubstr("cache-escapes"));
  for (const char* option : {"--require any", "--padding none", "--one-branch"})
    EXPECT_THAT(refused.err, Not(HasSubstr(option)));
}

/// GroupQueryAttention counts rows by the mask; a second layer reads its present and counts all
/// rows.
constexpr const char* borrowedKeys =
    R"(<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
decoder (int64[B, S] input_ids, int64[B, T] attention_mask, float[B, 1, P, 8] past_k, float[B, 1, P, 8] past_v)
  => (float[B, S, 16] logits, float[B, 1, T, 8] present_k, float[B, 1, T, 8] present_v)
<float[1, 1, 16] a = {1, 0.5, -1, 2, 0.25, 1, -0.5, 1, 1, 2, -2, 0.5, 1, 0.75, -1, 1},
 float[1, 1, 8] b = {0.5, 1, -1, 0.25, 2, -0.5, 1, 1}, int64[1] last = {2}, int64[1] one = {1}, int64 axis = {1},
 int64[4] split = {0, 0, 2, 8}, int64[3] merged = {0, 0, 16}, float scale = {0.05}>
{
  column = Unsqueeze (input_ids, last)
  number = Cast <to = 1> (column)
  small = Mul (number, scale)
  q = Mul (small, a)
  k = Mul (small, b)
  sums = ReduceSum <keepdims = 0> (attention_mask, one)
  less = Sub (sums, one)
  lengths = Cast <to = 6> (less)
  shape = Shape (attention_mask)
  total = Gather (shape, axis)
  longest = Cast <to = 6> (total)
  first, present_k, present_v = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1>
      (q, k, k, past_k, past_v, lengths, longest)
  again = Reshape (first, split)
  heads = Transpose <perm = [0, 2, 1, 3]> (again)
  rows = Attention <is_causal = 0> (heads, present_k, present_v)
  back = Transpose <perm = [0, 2, 1, 3]> (rows)
  logits = Reshape (back, merged)
})";

TEST(Remedies, OfRowsThatAreCountedInTwoWays) {
  const TemporaryFolder folder;
  const std::string model = folder.path("m.onnx");
  ASSERT_EQ(
      runProgram({"opt", folder.write("m.onnxtxt", borrowedKeys), "--pipeline", "", "-o", model})
          .code,
      0);
  const std::vector<std::string> command = {"rewrite", model,   "-o",       folder.path("out.onnx"),
                                            "--to",    "kvopt", "--verify", "off"};
  const ProgramResult refused = runProgram(command);
  EXPECT_EQ(refused.code, 1) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("--padding none rewrites 2 layers, if no batch is padded"));
  EXPECT_THAT(refused.err, Not(HasSubstr("give equal extents one symbol")));
  std::vector<std::string> remedied = command;
  remedied.insert(remedied.end(), {"--padding", "none"});
  EXPECT_EQ(runProgram(remedied).code, 0);
}

} // namespace
} // namespace kvopt
