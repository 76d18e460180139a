// What inputs are fed, by what reads them; no name says it.
#include "passes/analysis/interface/input_roles.h"

#include "ir/manifest/manifest_words.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"
#include "tests/ir/text/text_fixture.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

std::string extentsOf(const std::vector<ManifestExtent>& shape) {
  std::string text;
  for (const ManifestExtent& extent : shape) {
    const auto* fixed = std::get_if<int64_t>(&extent);
    text += (text.empty() ? "" : ",") +
            (fixed ? std::to_string(*fixed) : std::get<std::string>(extent));
  }
  return "[" + text + "]";
}

template <class Words, class Word> std::string wordOf(const Words& words, Word wanted) {
  for (const auto& word : words)
    if (word.value == wanted)
      return word.text;
  return "?";
}

/// `name[extents] feed`, lengths first.
std::string rolesOf(const std::string& inputs, const std::string& body,
                    const std::string& constants = "") {
  auto model = readOrFail(
      "<ir_version: 10, opset_import: [\"\" : 23, \"com.microsoft\" : 1, \"ai.kvopt\" : 1]>\ng "
      "(" +
      inputs + ") => (float[B, S, 8] scores)\n<float[8, 2] tokens = {" +
      "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, " +
      "float[6, 2] places = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, " +
      "float[3, 2] kinds = {0, 1, 2, 3, 4, 5}, float lowest = {-1e30}, " +
      "float zero = {0}, float one = {1}, int64 none = {0}, int64 unit = {1}, " +
      "float[2] rates = {1, 0.5}" + constants + ">\n{\n" + body + "\n}\n");
  if (!model)
    return "unreadable";
  llvm::cantFail(inferShapes(model->graph()));
  Manifest manifest;
  describeInputs(model->graph(), readInterface(model->graph()), manifest);
  std::string text;
  auto add = [&](const std::string& name, const std::vector<ManifestExtent>& shape,
                 const std::string& feed) {
    text += (text.empty() ? "" : "; ") + name + extentsOf(shape) + " " + feed;
  };
  for (const ManifestLength& length : manifest.lengths)
    add(length.input, length.shape, wordOf(feedWords, length.feed));
  for (const ManifestInput& input : manifest.inputs)
    add(input.input, input.shape, wordOf(inputFeedWords, input.feed));
  return text;
}

TEST(InputRoles, TokensPositionsAndKindsByTheirTables) {
  EXPECT_EQ(rolesOf("int64[B, S] a, int64[B, S] b, int64[B, S] c", R"(
  x = Gather (tokens, a)
  y = Gather (places, b)
  z = Gather (kinds, c)
  xy = Add (x, y)
  scores = Add (xy, z)
)"),
            "a[batch,new] token_ids; b[batch,new] position_ids; c[batch,new] segment_ids");
}

TEST(InputRoles, DocumentedNamesAreLeftOut) {
  EXPECT_EQ(rolesOf("int64[B, S] input_ids, int64[B, S] position_ids, int64[B, T] attention_mask",
                    R"(
  x = Gather (tokens, input_ids)
  y = Gather (places, position_ids)
  scores = Add (x, y)
)"),
            "");
  // But not where the rank is another one.
  EXPECT_EQ(rolesOf("int64[B, S] input_ids, float[B, 1, S, T] attention_mask, "
                    "float[B, H, S, D] l, float[B, H, D, T] r",
                    R"(
  q = MatMul (l, r)
  masked = Add (q, attention_mask)
  p = Softmax (masked)
  scores = Gather (tokens, input_ids)
)"),
            "attention_mask[batch,1,new,total] additive_mask");
}

TEST(InputRoles, RotaryPositionsAndLengths) {
  EXPECT_EQ(rolesOf("int64[B, S] input_ids, int64[S] at, int64[1] before, int64[1] behind, "
                    "int64[B] each, float[B, 2, C, 4] rows, float[B, 2, S, 4] fresh",
                    R"(
  float_at = Cast <to = 1> (at)
  column = Unsqueeze (float_at, axis)
  angles = Mul (column, rates)
  first = Squeeze (before)
  last = Squeeze (behind)
  steps = Range (none, last, unit)
  moved = Add (steps, first)
  written = TensorScatter (rows, fresh, each)
  scores = Gather (tokens, input_ids)
)",
                    ", int64[1] axis = {1}"),
            "before[1] past_length; behind[1] new_length; each[batch] past_length_per_batch; "
            "at[new] position_ids");
}

TEST(InputRoles, MasksByWhatTheySelect) {
  // Visible where true, hidden where true, complemented, compared, multiplied in.
  EXPECT_EQ(rolesOf("int64[B, S] input_ids, float[B, H, S, D] l, float[B, H, D, T] r, "
                    "bool[B, 1, S, T] a, "
                    "bool[1, 1, S, T] b, bool[B, 1, 1, T] c, int64[B, T] d, float[S, T] e, "
                    "float[B, T] f, bool[B, 1, S, T] g",
                    R"(
  q = MatMul (l, r)
  qa = Where (a, q, lowest)
  qb = Where (b, lowest, qa)
  not_c = Not (c)
  qc = Where (not_c, qb, lowest)
  d_float = Cast <to = 1> (d)
  d_hidden = Sub (one, d_float)
  d_added = Mul (d_hidden, lowest)
  d_wide = Unsqueeze (d_added, axes)
  qd = Add (qc, d_wide)
  qe = Add (qd, e)
  f_shown = Greater (f, zero)
  f_wide = Unsqueeze (f_shown, axes)
  qf = Where (f_wide, qe, lowest)
  g_bias = Where (g, zero, lowest)
  qg = Add (qf, g_bias)
  p = Softmax (qg)
  scores = Gather (tokens, input_ids)
)",
                    ", int64[2] axes = {1, 2}"),
            "a[batch,1,new,total] visible_keys; b[1,1,new,total] hidden_keys; "
            "c[batch,1,1,total] hidden_keys; d[batch,total] visible_keys; "
            "e[new,total] additive_mask; f[batch,total] visible_keys; "
            "g[batch,1,new,total] visible_keys");
}

TEST(InputRoles, FusedOperators) {
  EXPECT_EQ(rolesOf("int64[B, S] input_ids, float[B, S, 8] q, float[B, 2, P, 4] k, "
                    "float[B, 2, P, 4] v, int32[B] last, int32 all, bool[B, 1, S, T] seen, "
                    "float[B, 2, S, 4] q4, float[B, 2, S, 4] k4, float[B, 2, S, 4] v4",
                    R"(
  o, pk, pv = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (q, q, q, k, v, last, all)
  y = Attention (q4, k4, v4, seen)
  scores = Gather (tokens, input_ids)
)"),
            "last[batch] total_length_per_batch_minus_one; all[] total_length; "
            "seen[batch,1,new,total] visible_keys");
}

TEST(InputRoles, LengthsOfAttentionOverBuffers) {
  EXPECT_EQ(rolesOf("int64[B, 1] input_ids, float[B, 1, 8] q, float[B, 2, 16, 4] k, "
                    "float[B, 2, 16, 4] v, int32[1] before, int32[B, T] kept, int64[1] first_row, "
                    "int64[B] each, float[B, 2, 1, 4] q4, float[N, 8] rows, "
                    "float[M, 4, 2, 4] pool, int32[C] cumulative, int32[B] held, int32[B, W] table",
                    R"(
  o, pk, pv = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 2, past_present_share_buffer = 1>
      (q, q, q, kept, , k, v, before)
  y = ai.kvopt.Sdpa <scale = 1.0> (q4, k, v, , , first_row)
  z = ai.kvopt.Sdpa <scale = 1.0> (q4, k, v, , , each)
  p, a, b = com.microsoft.PagedAttention <num_heads = 2, kv_num_heads = 2>
      (rows, rows, rows, pool, pool, cumulative, held, table)
  scores = Gather (tokens, input_ids)
)"),
            "before[1] past_length; first_row[1] past_length; each[batch] past_length_per_batch; "
            "held[batch] past_length_per_batch; kept[batch,total] visible_keys; "
            "rows[batch,8] any; cumulative[batch] any; table[batch,W] any");
}

TEST(InputRoles, SegmentsBeamsAndTheUnknown) {
  EXPECT_EQ(rolesOf("int64[B, S] input_ids, int64[B, T] s, int64[B] beam, float[B, 2, P, 4] past, "
                    "int64[B, S] idle, float[B] heat, bool flag, float[B, F, 4] encoded",
                    R"(
  rows = Unsqueeze (s, first)
  columns = Unsqueeze (s, second)
  same = Equal (rows, columns)
  chosen = Gather (past, beam)
  scores = Gather (tokens, input_ids)
)",
                    ", int64[1] first = {1}, int64[1] second = {2}"),
            "s[batch,total] segment_ids; beam[batch] batch_rows; idle[batch,new] any; "
            "heat[batch] any; flag[] any");
}

/// What inputs of one element each are fed, where only these operators read them.
std::string lengthsOf(const std::string& inputs, const std::string& body) {
  return rolesOf("int64[B, S] input_ids, " + inputs +
                     ", float[B, 2, C, 4] rows, float[B, 2, S, 4] fresh",
                 "  size = Shape <start = 1, end = 2> (input_ids)\n" + body +
                     "\n  scores = Gather (tokens, input_ids)",
                 ", int64[1] axes = {0}, float[4, 2] angles = {0, 1, 2, 3, 4, 5, 6, 7}");
}

TEST(InputRoles, LengthsByTheOperandsThatTheyReach) {
  // As they are.
  EXPECT_EQ(lengthsOf("int64[B] at, int64[B] valid", R"(
  written = TensorScatter (rows, fresh, at)
  y = Attention (fresh, written, written, , , , valid)
)"),
            "at[batch] past_length_per_batch; valid[batch] total_length_per_batch");
  // With what the graph adds on the way.
  EXPECT_EQ(lengthsOf("int64[B] all", R"(
  at = Sub (all, size)
  written = TensorScatter (rows, fresh, at)
)"),
            "all[batch] total_length_per_batch");
  EXPECT_EQ(lengthsOf("int64[B] at", R"(
  valid = Add (at, size)
  y = Attention (fresh, rows, rows, , , , valid)
)"),
            "at[batch] past_length_per_batch");
  EXPECT_EQ(lengthsOf("int64[1] all", R"(
  single = Constant <value_ints = [1]> ()
  last = Sub (all, single)
  last_32 = Cast <to = 6> (last)
  row = Gather (tokens, input_ids)
  wide = Concat <axis = 2> (row, row, row, row)
  y = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (wide, wide, wide, rows, rows, last_32, last_32)
)"),
            "all[1] total_length");
}

TEST(InputRoles, LengthsByTheEndsOfSlices) {
  EXPECT_EQ(lengthsOf("int64[1] before", R"(
  until = Add (before, size)
  here = Slice (angles, before, until, axes)
)"),
            "before[1] past_length");
  EXPECT_EQ(lengthsOf("int64[1] all", R"(
  from = Sub (all, size)
  here = Slice (angles, from, all, axes)
)"),
            "all[1] total_length");
  // What is added to the past is what is new.
  EXPECT_EQ(lengthsOf("int64[1] history, int64[1] added", R"(
  until = Add (history, added)
  here = Slice (angles, history, until, axes)
)"),
            "history[1] past_length; added[1] new_length");
  EXPECT_EQ(lengthsOf("int64[1] added, int64[1] history", R"(
  until = Add (added, history)
  here = Slice (angles, history, until, axes)
)"),
            "added[1] new_length; history[1] past_length");
}

TEST(InputRoles, LengthsThatNothingTellsApartAreNotGuessed) {
  EXPECT_EQ(lengthsOf("int64[1] one_length, int64[1] other_length", R"(
  until = Add (one_length, other_length)
  from = Constant <value_ints = [0]> ()
  here = Slice (angles, from, until, axes)
)"),
            "one_length[1] any; other_length[1] any");
}

TEST(InputRoles, RowsThatAreDroppedAreNoLength) {
  EXPECT_EQ(lengthsOf("int64[1] dropped", R"(
  until = Constant <value_ints = [1000]> ()
  axis = Constant <value_ints = [2]> ()
  kept = Slice (rows, dropped, until, axis)
)"),
            "dropped[1] any");
}

TEST(InputRoles, ATriangleIsSwitchedOnInTheFirstStep) {
  EXPECT_EQ(
      rolesOf("int64[B, S] input_ids, int8[1] attention_mask, float[2, 4, 8] l, "
              "float[2, 8, 4] r",
              R"(
  s = MatMul (l, r)
  on = Cast <to = 1> (attention_mask)
  mask = Mul (on, triangle)
  masked = Add (s, mask)
  p = Softmax (masked)
  scores = Gather (tokens, input_ids)
)",
              ", float[4, 4] triangle = {0, -128, -128, -128, 0, 0, -128, -128, 0, 0, 0, -128, "
              "0, 0, 0, 0}"),
      "attention_mask[1] no_past");
}

TEST(InputRoles, WhatIsTakenFromScoresHides) {
  const std::string masks = "int64[B, S] input_ids, float[B, 1, 1, T] shown, float[B, 1, 1, T] "
                            "hidden, float[B, H, S, D] l, float[B, H, D, T] r";
  EXPECT_EQ(rolesOf(masks, R"(
  s = MatMul (l, r)
  kept = Mul (s, shown)
  missing = Sub (one, shown)
  far = Mul (missing, large)
  low = Sub (kept, far)
  away = Mul (hidden, large)
  lower = Sub (low, away)
  p = Softmax (lower)
  scores = Gather (tokens, input_ids)
)",
                    ", float large = {1e10}"),
            "shown[batch,1,1,total] visible_keys; hidden[batch,1,1,total] hidden_keys");
}

TEST(InputRoles, WhatReadsAnInputOutranksItsName) {
  EXPECT_EQ(rolesOf("int64[B, S] input_ids, int64[B, S] attention_mask", R"(
  x = Gather (tokens, input_ids)
  y = Gather (places, attention_mask)
  scores = Add (x, y)
)"),
            "attention_mask[batch,new] position_ids");
}

TEST(InputRoles, AnInputForTwoLengthsIsAnError) {
  auto model =
      readOrFail("<ir_version: 10, opset_import: [\"\" : 24]>\ng (float[B, 2, S, 4] fresh, "
                 "float[B, 2, 9, 4] rows, int64[B] length) => (float[B, 2, S, 4] y) {\n"
                 "  written = TensorScatter (rows, fresh, length)\n"
                 "  y = Attention (fresh, written, written, , , , length)\n}");
  ASSERT_TRUE(model);
  llvm::cantFail(inferShapes(model->graph()));
  llvm::Error error = checkLengths(readInterface(model->graph()));
  ASSERT_TRUE(bool(error));
  const std::string text = takeDiagnostic(std::move(error)).str();
  EXPECT_THAT(text,
              testing::AllOf(testing::HasSubstr("TensorScatter"), testing::HasSubstr("Attention"),
                             testing::HasSubstr("past_length_per_batch"),
                             testing::HasSubstr("total_length_per_batch")));
}

} // namespace
} // namespace kvopt
