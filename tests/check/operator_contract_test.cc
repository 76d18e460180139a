// What operators require beyond the function bodies and rules by which they are evaluated.
#include "check/evaluation/operator_contract.h"
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

/// The call of an operator over keys and values in blocks with these numbers of rows.
struct BlockCall {
  BlockCall(const std::string& attributes, const std::vector<int64_t>& rows) {
    const size_t each = rows.size() / 2;
    std::string inputs, operands;
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::string name = (i < each ? "k" : "v") + std::to_string(i % each);
      inputs += ", float[1, 1, R" + std::to_string(i) + ", 8] " + name;
      operands += ", " + name;
    }
    model = read(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
g (float[1, 1, 1, 8] q, float[1, 1, 1, 8] k, float[1, 1, 1, 8] v)" +
                 inputs + R"() => (float[1, 1, 1, 8] o)
{
  o = ai.kvopt.BlockKvSdpa <scale = 0.5)" +
                 attributes + R"(> (q, k, v, "", "")" + operands + ")\n}\n");
    for (int64_t extent : {1, 1, 1})
      values.push_back(hollowTensor({1, 1, extent, 8}, false));
    values.append(2, nullptr);
    for (int64_t extent : rows)
      values.push_back(hollowTensor({1, 1, extent, 8}, false));
  }
  Call call() { return Call(*model->graph().nodes().begin(), nullptr, values, math); }

  std::unique_ptr<ir::Model> model;
  llvm::SmallVector<Ref, 8> values;
  Arithmetic math{0};
};

TEST(OperatorContract, AttributesAreInTheirRanges) {
  for (const char* attributes :
       {"", ", causal = 1", ", window = 3", ", softcap = 30.0", ", mask_boolean = 1"})
    EXPECT_EQ(contractViolation(BlockCall(attributes, {4, 4}).call()), "") << attributes;
  for (const char* attributes : {", causal = -1", ", causal = 2", ", window = -1",
                                 ", softcap = -1.0", ", mask_boolean = 2", ", do_rotary = 1"})
    EXPECT_NE(contractViolation(BlockCall(attributes, {4, 4}).call()), "") << attributes;
}

TEST(OperatorContract, BlocksHaveAsManyKeysAsValues) {
  EXPECT_EQ(contractViolation(BlockCall("", {4, 2, 4, 2}).call()), "");
  EXPECT_EQ(contractViolation(BlockCall("", {4, 2, 3, 3}).call()), "");
  EXPECT_NE(contractViolation(BlockCall("", {4, 4, 4, 2}).call()), "");
  EXPECT_NE(contractViolation(BlockCall("", {4, 2, 4, 4}).call()), "");
}

/// GroupQueryAttention over buffers of 24 rows. Its total length has `more` tokens too many.
std::string grouped(int more) {
  return R"(<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[B, S, 8] inputs_embeds, float[B, 1, 24, 8] past_key, float[B, 1, 24, 8] past_value,
   int64 past_length)
  => (float[B, S, 8] attended, float[B, 1, 24, 8] present_key, float[B, 1, 24, 8] present_value)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] all = {-1}, int64[1] more = {)" +
         std::to_string(more) + R"(}>
{
  start = Reshape (past_length, all)
  shape = Shape (inputs_embeds)
  count = Gather (shape, one)
  rows = Gather (shape, zero)
  end = Add (start, count)
  last = Sub (end, one)
  short = Cast <to = 6> (last)
  lengths = Expand (short, rows)
  longer = Add (end, more)
  total = Cast <to = 6> (longer)
  attended, present_key, present_value = com.microsoft.GroupQueryAttention <num_heads = 1,
    kv_num_heads = 1> (inputs_embeds, inputs_embeds, inputs_embeds, past_key, past_value, lengths,
    total)
}
)";
}

TEST(OperatorContract, TheTotalLengthIsThatOfTheLongestRow) {
  auto first = read(grouped(0));
  ASSERT_TRUE(first);
  const ir::Manifest manifest = inBuffers(ir::LengthFeed::PastLength, int64_t(24));
  for (int more : {0, 1, 2}) {
    auto second = read(grouped(more));
    ASSERT_TRUE(second);
    EXPECT_EQ(checkModels({*first, manifest}, {*second, manifest}).verdict(),
              more == 0 ? Verdict::Proved : Verdict::Different)
        << more;
  }
}

} // namespace
} // namespace kvopt::check
