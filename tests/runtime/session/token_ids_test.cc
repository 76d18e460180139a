// Which ids the tables of a graph have entries for.
#include "runtime/session/token_ids.h"

#include "ir/shapes/shape_inference.h"
#include "runtime/session/decoder_inputs.h"
#include "support/format.h"
#include "tests/ir/text/text_fixture.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// A graph that looks the ids of `input` up as `body` says, in tables of 9 and of 20 rows.
std::unique_ptr<Model> lookup(const std::string& input, const std::string& body) {
  std::string zeros = "0";
  for (int i = 1; i < 40; ++i)
    zeros += ", 0";
  auto model = readOrFail(formatted(
      R"(<ir_version: 8, opset_import: ["" : 17]>
g (int64{} input_ids) => (float[] y)
<float[9, 2] small = {{{}}}, float[20, 2] large = {{{}}}, int64[4] offsets = {{0, 5, 9, 14}},
 int64[4, 1] column = {{0, 5, 9, 14}}, int64 three = {{3}}, int64 two = {{2}}, int64 zero = {{0}}, int64 one = {{1}},
 int64[1] first = {{0}}, int64[1] second = {{1}}, int64[1] minus = {{-1}}>
{{
{}
}}
)",
      input, zeros.substr(0, 18 * 3 - 2), zeros, body));
  if (model)
    llvm::cantFail(inferShapes(model->graph()));
  return model;
}

std::string found(const std::string& input, const std::string& body) {
  const auto model = lookup(input, body);
  if (!model)
    return "unreadable";
  const TokenIds ids = tokenIdsOf(*model->graph().inputs().front());
  return formatted("{} axis {} rows {}", joinedText(ids.counts, " "),
                   ids.axis ? static_cast<int>(*ids.axis) : -1, ids.rowsPerBatch);
}

TEST(TokenIds, OneTable) {
  EXPECT_EQ(found("[B, S]", "  y = Gather (large, input_ids)"), "20 axis -1 rows 1");
  EXPECT_EQ(found("[B, S]", "  a = Add (input_ids, three)\n  y = Gather (large, a)"),
            "17 axis -1 rows 1");
  EXPECT_EQ(
      found("[B, S]", "  a = Mul (input_ids, two)\n  b = Add (one, a)\n  y = Gather (large, b)"),
      "10 axis -1 rows 1");
  EXPECT_EQ(found("[B, S]", "  a = Sub (input_ids, three)\n  y = Gather (small, a)"),
            "12 axis -1 rows 1");
  EXPECT_EQ(found("[B, S]", "  a = Equal (input_ids, three)\n  b = Add (input_ids, two)\n"
                            "  c = Where (a, input_ids, b)\n  y = Gather (large, c)"),
            "18 axis -1 rows 1");
  EXPECT_EQ(found("[B, S]", "  u = Unsqueeze (input_ids, minus)\n  y = GatherND (large, u)"),
            "20 axis -1 rows 1");
  EXPECT_EQ(found("[B, S]", "  y = Cast <to = 1> (input_ids)"), " axis -1 rows 1");
}

TEST(TokenIds, TablesThatFollowOneAnother) {
  EXPECT_EQ(found("[B, S, 4]", "  a = Add (input_ids, offsets)\n  y = Gather (large, a)"),
            "20 15 11 6 axis 2 rows 1");
  EXPECT_EQ(found("[B, 4, S]", "  a = Add (column, input_ids)\n  y = Gather (large, a)"),
            "20 15 11 6 axis 1 rows 1");
  // Where the axes have moved, any element may have the largest offset.
  EXPECT_EQ(found("[B, 4, S]", "  t = Transpose <perm = [0, 2, 1]> (input_ids)\n"
                               "  a = Add (t, offsets)\n  y = Gather (large, a)"),
            "6 axis -1 rows 1");
}

TEST(TokenIds, ATableForEachCodebook) {
  EXPECT_EQ(found("[B, 2, S]",
                  "  a = Gather <axis = 1> (input_ids, zero)\n"
                  "  b = Gather <axis = 1> (input_ids, one)\n"
                  "  c = Gather (large, a)\n  d = Gather (small, b)\n  y = Add (c, d)"),
            "20 9 axis 1 rows 1");
  EXPECT_EQ(found("[B, S, 2]",
                  "  a, b = Split <axis = 2> (input_ids)\n"
                  "  c = Gather (large, a)\n  d = Gather (small, b)\n  y = Add (c, d)"),
            "20 9 axis 2 rows 1");
}

TEST(TokenIds, CodebooksThatShareAnAxisWithBatchRows) {
  const std::string split =
      "  n = Shape <start = 1> (input_ids)\n  four = Constant <value_ints = [4]> ()\n"
      "  s = Concat <axis = 0> (minus, four, n)\n  r = Reshape (input_ids, s)\n";
  EXPECT_EQ(found("[R, S]", split + "  y = Gather (large, r)"), "20 axis -1 rows 4");
  EXPECT_EQ(found("[R, S]", split + "  a = Gather <axis = 1> (r, zero)\n  y = Gather (small, a)"),
            "9 axis -1 rows 4");
}

TEST(TokenIds, MadeUpIdsHaveEntriesAndGivenOnesStay) {
  const auto model = lookup("[B, S, 4]", "  a = Add (input_ids, offsets)\n  y = Gather (large, a)");
  ASSERT_TRUE(model);
  DecoderStep step;
  step.tokens = {{19, 0, 7}, {6, 18, 12}};
  const Value* input = model->graph().inputs().front().get();
  for (const bool isMadeUp : {true, false}) {
    step.isMadeUp = isMadeUp;
    auto made = decoderInputs({input}, step, std::make_shared<Allocator>());
    ASSERT_TRUE(bool(made));
    const TensorView& view = made->front().tensor.view;
    ASSERT_EQ(view.shape, (Extents{2, 3, 4}));
    const int64_t counts[] = {20, 15, 11, 6};
    for (int64_t i = 0; i < view.elementCount(); ++i) {
      const int64_t given =
          step.tokens[static_cast<size_t>(i / 12)][static_cast<size_t>(i / 4 % 3)];
      if (isMadeUp)
        EXPECT_LT(view.as<int64_t>()[i], counts[i % 4]);
      else
        EXPECT_EQ(view.as<int64_t>()[i], given);
    }
  }
}

} // namespace
} // namespace kvopt
