// A batch that is declared as a symbol, and that constants of the graph make 1.
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace cli;

namespace {

using testing::HasSubstr;

constexpr const char* batchOfOne = R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[batch, sequence] input_ids, float[batch, 2, past, 8] past_k, float[batch, 2, past, 8] past_v)
  => (float[batch, sequence, 16] logits, float[batch, 2, total, 8] present_k, float[batch, 2, total, 8] present_v)
<float[1, 1, 16] a = {1, 0.5, -1, 2, 0.25, 1, -0.5, 1, 1, 2, -2, 0.5, 1, 0.75, -1, 1},
 int64[1] last = {2}, int64[4] heads = {1, -1, 2, 8}, int64[3] merged = {1, -1, 16}, float scale = {0.05}>
{
  column = Unsqueeze (input_ids, last)
  number = Cast <to = 1> (column)
  small = Mul (number, scale)
  row = Mul (small, a)
  split = Reshape (row, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (split)
  present_k = Concat <axis = 2> (past_k, q)
  present_v = Concat <axis = 2> (past_v, q)
  keys = Transpose <perm = [0, 1, 3, 2]> (present_k)
  scores = MatMul (q, keys)
  p = Softmax <axis = -1> (scores)
  o = MatMul (p, present_v)
  back = Transpose <perm = [0, 2, 1, 3]> (o)
  logits = Reshape (back, merged)
})";

TEST(FixedBatch, IsNamedWithItsNodeAndRewritten) {
  const TemporaryFolder folder;
  const std::string model = folder.path("m.onnx");
  ASSERT_EQ(
      runProgram({"opt", folder.write("m.onnxtxt", batchOfOne), "--pipeline", "", "-o", model})
          .code,
      0);
  EXPECT_THAT(runProgram({"explain", model}).out, HasSubstr("batch is 1: node of 'split'"));
  EXPECT_THAT(runProgram({"inspect", model}).out, HasSubstr("1 of 1 layers"));
  for (const char* target : {"kvopt", "onnx23", "primitive"}) {
    const ProgramResult written =
        runProgram({"rewrite", model, "-o", folder.path("out.onnx"), "--to", target});
    EXPECT_EQ(written.code, 0) << target << written.out << written.err;
  }
  EXPECT_EQ(runProgram({"run", model, "--tokens", "3,4,5", "--steps", "3"}).code, 0);
  const ProgramResult two =
      runProgram({"run", model, "--tokens", "3,4,5", "--tokens", "6,7,8", "--steps", "3"});
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, HasSubstr("2 prompts, and batch is 1: node of 'split'"));
}

} // namespace
} // namespace kvopt
