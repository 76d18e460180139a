// Keys, values and presents in spellings that no rule knows: found by what they compute, and
// rewritten into the same. What only looks like them is refused, or computes the same as well.
#include "support/format.h"
#include "support/string_ends.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

struct RespelledCase {
  const char* name;
  /// The present `c_@` and the keys or values `a_@`, of past_@ [B,2,P,4] and f_@ [B,2,S,4], or
  /// x_@ [B,S,2,4].
  const char* text;
};

void PrintTo(const RespelledCase& each, std::ostream* out) { *out << each.name; }

/// Past and new rows, joined plainly, and the same in reverse.
constexpr const char* joined = R"(
  j_@ = Concat <axis = 2> (past_@, f_@)
  r_@ = Slice (j_@, l_last, l_least, l2, l_last)
)";
constexpr const char* plainDecoder = R"(
  c_@ = Identity (j_@)
  a_@ = Identity (j_@)
)";

std::string ofSide(llvm::StringRef text, char side) {
  std::string result = text.str();
  std::replace(result.begin(), result.end(), '@', side);
  return result;
}

/// Keys and values of the query's heads, of a_@ with as many or with two.
constexpr const char* repeatedHeads = R"(
  keys = Identity (a_k)
  values = Identity (a_v)
)";
constexpr const char* groupedHeads = R"(
  k_parted = Unsqueeze (a_k, l2)
  k_twice = Expand (k_parted, twice)
  keys = Reshape (k_twice, all_heads)
  v_parted = Unsqueeze (a_v, l2)
  v_twice = Expand (v_parted, twice)
  values = Reshape (v_twice, all_heads)
)";

/// What comes after `o`, which is attention's result.
std::string behindAttention() {
  const size_t attention = decoderResults.find("o = ");
  return decoderResults.substr(decoderResults.find('\n', attention));
}

std::string modelText(const std::string& keys, const std::string& values, bool isRepeated = false) {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, 2, P, 4] past_k, float[B, 2, P, 4] past_v, float[1, 1, 16] table,
         float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[B, 2, "P + S", 4] c_k, float[B, 2, "P + S", 4] c_v)
  <int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64 six = {{6}}, int64 eight = {{8}},
   int64[1] l0 = {{0}}, int64[1] l1 = {{1}}, int64[1] l2 = {{2}}, int64[1] l3 = {{3}},
   int64[1] l_last = {{-1}}, int64[1] l_most = {{9223372036854775807}},
   int64[1] l_least = {{-9223372036854775807}}, int64[2] l_each = {{1, 1}}, int64[2] l_first = {{0, 0}},
   int64[4] of_heads = {{0, 0, 1, 1}}, int64[2] other_heads = {{1, 0}}, float[2] off_on = {{0.0, 1.0}},
   int64[4] all_heads = {{0, 4, -1, 4}}, int64[3] rows_of_heads = {{0, 2, -1}},
   int64[5] twice = {{1, 1, 2, 1, 1}}, int64[4] cache_shape = {{0, 2, -1, 4}},
   int64[4] of_rows = {{1, 1, -1, 1}}, int64[3] merged = {{0, -1, 8}}, int64[4] parted = {{0, -1, 2, 4}},
   float factor = {{2.0}}, float half = {{0.5}}, float lowest = {{-inf}}>
{{
{projections}
  ids_shape = Shape (input_ids)
  past_shape = Shape (past_k)
  b = Gather (ids_shape, zero)
  s = Gather (ids_shape, one)
  p = Gather (past_shape, two)
  t = Add (p, s)
  s_list = Unsqueeze (s, l0)
  p_list = Unsqueeze (p, l0)
  t_list = Unsqueeze (t, l0)
  rows = Range (zero, t, one)
  row_column = Reshape (rows, of_rows)
  is_old = Less (row_column, p)
  is_new = Not (is_old)
  f_k = Transpose <perm = [0, 2, 1, 3]> (x_k)
  f_v = Transpose <perm = [0, 2, 1, 3]> (x_v)
  none = Concat <axis = 0> (l0, l0)
  before_new = Concat <axis = 0> (none, p_list, none, none, l0)
  after_old = Concat <axis = 0> (none, none, none, s_list, l0)
{0}
{1}
{heads}
  keys_turned = Transpose <perm = [0, 1, 3, 2]> (keys)
  products = MatMul (q, keys_turned)
  scores = Mul (products, half)
  at = Range (p, t, one)
  at_column = Unsqueeze (at, l_last)
  is_seen = LessOrEqual (rows, at_column)
  masked = Where (is_seen, scores, lowest)
  weights = Softmax <axis = -1> (masked)
  o = MatMul (weights, values)
{results}
}})",
                   keys, values, named("projections", decoderProjections),
                   named("heads", isRepeated ? repeatedHeads : groupedHeads),
                   named("results", behindAttention()));
}

/// j_@ in spellings of the joining; the attention reads it as it is.
const RespelledCase joinings[] = {
    {"in_rows", R"(
  p_@ = Transpose <perm = [0, 2, 1, 3]> (past_@)
  w_@ = Concat <axis = 1> (p_@, x_@)
  j_@ = Transpose <perm = [0, 2, 1, 3]> (w_@))"},
    {"in_merged_rows", R"(
  p_@ = Transpose <perm = [0, 2, 1, 3]> (past_@)
  m_@ = Reshape (p_@, merged)
  n_@ = Reshape (x_@, merged)
  w_@ = Concat <axis = 1> (m_@, n_@)
  u_@ = Reshape (w_@, parted)
  j_@ = Transpose <perm = [0, 2, 1, 3]> (u_@))"},
    {"head_by_head", R"(
  p0_@, p1_@ = Split <axis = 1> (past_@, l_each)
  f0_@, f1_@ = Split <axis = 1> (f_@, l_each)
  j0_@ = Concat <axis = 2> (p0_@, f0_@)
  j1_@ = Concat <axis = 2> (p1_@, f1_@)
  j_@ = Concat <axis = 1> (j0_@, j1_@))"},
    {"padded_and_chosen", R"(
  o_@ = Pad (past_@, after_old)
  n_@ = Pad (f_@, before_new)
  j_@ = Where (is_old, o_@, n_@))"},
    {"scattered_points", R"(
  o_@ = Pad (past_@, after_old)
  ot_@ = Transpose <perm = [2, 0, 1, 3]> (o_@)
  xt_@ = Transpose <perm = [1, 0, 2, 3]> (x_@)
  at_@ = Range (p, t, one)
  points_@ = Unsqueeze (at_@, l_last)
  w_@ = ScatterND (ot_@, points_@, xt_@)
  j_@ = Transpose <perm = [1, 2, 0, 3]> (w_@))"},
    {"rolled", R"(
  n_@ = Concat <axis = 2> (f_@, past_@)
  moved_@ = Add (rows, s)
  from_@ = Mod (moved_@, t)
  j_@ = Gather <axis = 2> (n_@, from_@))"},
    {"twice_reversed", R"(
  po_@ = Slice (past_@, l_last, l_least, l2, l_last)
  fo_@ = Slice (f_@, l_last, l_least, l2, l_last)
  w_@ = Concat <axis = 2> (fo_@, po_@)
  j_@ = Slice (w_@, l_last, l_least, l2, l_last))"},
    {"flattened", R"(
  p_@ = Reshape (past_@, rows_of_heads)
  n_@ = Reshape (f_@, rows_of_heads)
  w_@ = Concat <axis = 2> (p_@, n_@)
  j_@ = Reshape (w_@, cache_shape))"},
    {"padded_and_added", R"(
  o_@ = Pad (past_@, after_old)
  n_@ = Pad (f_@, before_new)
  j_@ = Add (o_@, n_@))"},
    {"padded_and_masked", R"(
  o_@ = Pad (past_@, after_old)
  n_@ = Pad (f_@, before_new)
  old_@ = Cast <to = 1> (is_old)
  new_@ = Cast <to = 1> (is_new)
  oo_@ = Mul (o_@, old_@)
  nn_@ = Mul (n_@, new_@)
  j_@ = Add (oo_@, nn_@))"},
    {"by_a_table", R"(
  k_@ = Concat <axis = 2> (past_@, f_@)
  table_@ = OneHot (rows, t, off_on)
  j_@ = MatMul (table_@, k_@))"},
};

/// a_@ [B,4,T,4] in spellings of repeated heads, of j_@.
const RespelledCase repeats[] = {
    {"tiled", R"(
  u_@ = Unsqueeze (j_@, l2)
  e_@ = Tile (u_@, twice)
  a_@ = Reshape (e_@, all_heads))"},
    {"expanded", R"(
  u_@ = Unsqueeze (j_@, l2)
  e_@ = Expand (u_@, twice)
  a_@ = Reshape (e_@, all_heads))"},
    {"gathered", R"(
  a_@ = Gather <axis = 1> (j_@, of_heads))"},
    {"copied", R"(
  j0_@, j1_@ = Split <axis = 1> (j_@, l_each)
  a_@ = Concat <axis = 1> (j0_@, j0_@, j1_@, j1_@))"},
    {"by_a_table", R"(
  table_@ = OneHot (of_heads, two, off_on)
  m_@ = Reshape (j_@, rows_of_heads)
  w_@ = MatMul (table_@, m_@)
  a_@ = Reshape (w_@, all_heads))"},
    {"by_an_equation", R"(
  table_@ = OneHot (of_heads, two, off_on)
  a_@ = Einsum <equation = "gh,bhtd->bgtd"> (table_@, j_@))"},
};

class RespelledCaches : public testing::TestWithParam<RespelledCase> {
protected:
  static EquivalencePlan plan() {
    EquivalencePlan plan;
    plan.prompt = 34;
    plan.chunks = {2, 4};
    plan.decodeSteps = 4;
    plan.vocabulary = 50;
    plan.tolerance = {1e-5, 0};
    return plan;
  }

  void expectEqual(const std::string& path) {
    const DrivenModel exported = asExported(path, toolkit);
    const DrivenModel found = rewritten(path, toolkit);
    const VerificationReport report = valueOrThrow(verifyModels(
        *exported.model, exported.manifest, *found.model, found.manifest, plan(), 1, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
  }

  void expectRecovered(const std::string& text) {
    const std::string path = writtenModel(text, toolkit, folder);
    const RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
    ASSERT_EQ(recovered.context->sites.size(), 1U);
    const analysis::AttentionSite& site = recovered.context->sites[0];
    ASSERT_TRUE(site.isMatched()) << site.failure->str();
    EXPECT_TRUE(site.grows());
    EXPECT_EQ(site.keyHeads.value(), 2);
    expectEqual(path);
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

std::string caseName(const testing::TestParamInfo<RespelledCase>& parameter) {
  return parameter.param.name;
}

class RespelledJoins : public RespelledCaches {};

TEST_P(RespelledJoins, AreRecovered) {
  const std::string text = std::string(GetParam().text) + plainDecoder;
  expectRecovered(modelText(ofSide(text, 'k'), ofSide(text, 'v')));
}

TEST_P(RespelledJoins, AreRecoveredWithRepeats) {
  const std::string text =
      std::string(GetParam().text) + "\n  c_@ = Identity (j_@)\n" + repeats[2].text;
  expectRecovered(modelText(ofSide(text, 'k'), ofSide(text, 'v'), /*isRepeated=*/true));
}

INSTANTIATE_TEST_SUITE_P(All, RespelledJoins, testing::ValuesIn(joinings), caseName);

class RespelledRepeats : public RespelledCaches {};

TEST_P(RespelledRepeats, AreRecovered) {
  const std::string text = std::string(joined) + "  c_@ = Identity (j_@)\n" + GetParam().text;
  expectRecovered(modelText(ofSide(text, 'k'), ofSide(text, 'v'), /*isRepeated=*/true));
}

INSTANTIATE_TEST_SUITE_P(All, RespelledRepeats, testing::ValuesIn(repeats), caseName);

/// What j_@ and r_@, its rows in reverse, do not make keys.
const RespelledCase traps[] = {
    {"sum_of_rows", "a_@ = Add (j_@, r_@)\n c_@ = Identity (j_@)"},
    {"one_row", R"(
  first_@ = Slice (j_@, l0, l1, l2)
  extents_@ = Shape (j_@)
  a_@ = Expand (first_@, extents_@)
  c_@ = Identity (j_@))"},
    {"reversed_rows", "a_@ = Identity (r_@)\n c_@ = Identity (j_@)"},
    {"reversed_present", "a_@ = Identity (j_@)\n c_@ = Identity (r_@)"},
    {"reversed_past", R"(
  o_@ = Slice (past_@, l_last, l_least, l2, l_last)
  a_@ = Concat <axis = 2> (o_@, f_@)
  c_@ = Identity (j_@))"},
    {"reversed_new_rows", R"(
  o_@ = Slice (f_@, l_last, l_least, l2, l_last)
  a_@ = Concat <axis = 2> (past_@, o_@)
  c_@ = Identity (j_@))"},
    {"new_rows_first", "c_@ = Concat <axis = 2> (f_@, past_@)\n a_@ = Identity (j_@)"},
    {"new_keys_first", "a_@ = Concat <axis = 2> (f_@, past_@)\n c_@ = Identity (j_@)"},
    {"heads_exchanged", "a_@ = Gather <axis = 1> (j_@, other_heads)\n c_@ = Identity (j_@)"},
    {"one_head", "a_@ = Gather <axis = 1> (j_@, l_first)\n c_@ = Identity (j_@)"},
    {"batch_exchanged", "a_@ = Slice (j_@, l_last, l_least, l0, l_last)\n c_@ = Identity (j_@)"},
    {"columns_exchanged", "a_@ = Slice (j_@, l_last, l_least, l3, l_last)\n c_@ = Identity (j_@)"},
    {"new_rows_scaled_in_present", R"(
  n_@ = Mul (f_@, factor)
  c_@ = Concat <axis = 2> (past_@, n_@)
  a_@ = Identity (j_@))"},
    {"new_rows_scaled_in_keys", R"(
  n_@ = Mul (f_@, factor)
  a_@ = Concat <axis = 2> (past_@, n_@)
  c_@ = Identity (j_@))"},
    {"past_scaled_in_keys", R"(
  n_@ = Mul (past_@, factor)
  a_@ = Concat <axis = 2> (n_@, f_@)
  c_@ = Identity (j_@))"},
    {"old_rows_masked", R"(
  new_@ = Cast <to = 1> (is_new)
  a_@ = Mul (j_@, new_@)
  c_@ = Identity (j_@))"},
    {"values_of_the_other", R"(
  b_@ = Concat <axis = 2> (past_v, f_v)
  a_@ = Identity (b_@)
  c_@ = Identity (j_@))"},
    {"even_tokens", R"(
  rest_@ = Mod (s, two)
  if_@ = Equal (rest_@, zero)
  a_@ = Where (if_@, r_@, j_@)
  c_@ = Identity (j_@))"},
    {"at_37_rows", R"(
  n_@ = Constant <value_int = 37> ()
  if_@ = Equal (p, n_@)
  a_@ = Where (if_@, r_@, j_@)
  c_@ = Identity (j_@))"},
    {"at_37_computed_rows", R"(
  m_@ = Mul (six, six)
  n_@ = Add (m_@, one)
  if_@ = Equal (p, n_@)
  a_@ = Where (if_@, r_@, j_@)
  c_@ = Identity (j_@))"},
    {"at_37_rows_in_the_present", R"(
  n_@ = Constant <value_int = 37> ()
  if_@ = Equal (p, n_@)
  c_@ = Where (if_@, r_@, j_@)
  a_@ = Identity (j_@))"},
    {"at_34_tokens", R"(
  n_@ = Constant <value_int = 34> ()
  if_@ = Equal (s, n_@)
  a_@ = Where (if_@, r_@, j_@)
  c_@ = Identity (j_@))"},
    {"at_9_batch_rows", R"(
  n_@ = Constant <value_int = 9> ()
  if_@ = Equal (b, n_@)
  a_@ = Where (if_@, r_@, j_@)
  c_@ = Identity (j_@))"},
    {"after_4096_rows", R"(
  n_@ = Constant <value_int = 4096> ()
  if_@ = Greater (t, n_@)
  a_@ = Where (if_@, r_@, j_@)
  c_@ = Identity (j_@))"},
    {"after_4096_computed_rows", R"(
  m_@ = Mul (eight, eight)
  n_@ = Mul (m_@, m_@)
  if_@ = Greater (t, n_@)
  a_@ = Where (if_@, r_@, j_@)
  c_@ = Identity (j_@))"},
    {"by_a_token", R"(
  n_@ = Constant <value_int = 41> ()
  are_@ = Equal (input_ids, n_@)
  ints_@ = Cast <to = 7> (are_@)
  any_@ = ReduceMax <keepdims = 0> (ints_@)
  if_@ = Cast <to = 9> (any_@)
  a_@ = Where (if_@, r_@, j_@)
  c_@ = Identity (j_@))"},
    {"by_larger_tokens", R"(
  n_@ = Constant <value_int = 45> ()
  any_@ = ReduceMax <keepdims = 0> (input_ids)
  if_@ = Greater (any_@, n_@)
  a_@ = Where (if_@, r_@, j_@)
  c_@ = Identity (j_@))"},
    {"by_the_sum_of_tokens", R"(
  sum_@ = ReduceSum <keepdims = 0> (input_ids)
  rest_@ = Mod (sum_@, two)
  if_@ = Equal (rest_@, one)
  a_@ = Where (if_@, r_@, j_@)
  c_@ = Identity (j_@))"},
    {"two_rows_exchanged", R"(
  low_@ = Equal (rows, one)
  high_@ = Equal (rows, two)
  up_@ = Where (low_@, two, rows)
  down_@ = Where (high_@, one, up_@)
  last_@ = Sub (t, one)
  from_@ = Min (down_@, last_@)
  a_@ = Gather <axis = 2> (j_@, from_@)
  c_@ = Identity (j_@))"},
    {"a_row_dropped", R"(
  a_@ = Slice (j_@, l1, l_most, l2)
  c_@ = Identity (j_@))"},
    {"every_eighth_row", R"(
  rest_@ = Mod (row_column, eight)
  if_@ = Equal (rest_@, six)
  a_@ = Where (if_@, r_@, j_@)
  c_@ = Identity (j_@))"},
};

class RespelledTraps : public RespelledCaches {
protected:
  /// Refused, or the same.
  void expectNothingWrong(const std::string& text) {
    const std::string path = writtenModel(text, toolkit, folder);
    const RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
    const targets::Target& target = *toolkit.targets.find("kvopt");
    for (const analysis::AttentionSite& site : recovered.context->sites)
      if (target.supports(site, *recovered.model))
        return;
    expectTakenRightly(path);
  }
  void expectTakenRightly(const std::string& path) {
    const bool isConditional = startsWith(GetParam().name, "a");
    EXPECT_FALSE(isConditional) << "taken, though it differs at other sizes";
    expectEqual(path);
  }
};

TEST_P(RespelledTraps, AreRefusedOrKeptInKeys) {
  const std::string trap = std::string(joined) + GetParam().text,
                    other = std::string(joined) + plainDecoder;
  expectNothingWrong(modelText(ofSide(trap, 'k'), ofSide(other, 'v')));
}

TEST_P(RespelledTraps, AreRefusedOrKeptInValues) {
  const std::string trap = std::string(joined) + GetParam().text,
                    other = std::string(joined) + plainDecoder;
  if (llvm::StringRef(GetParam().name) != "values_of_the_other")
    expectNothingWrong(modelText(ofSide(other, 'k'), ofSide(trap, 'v')));
}

INSTANTIATE_TEST_SUITE_P(All, RespelledTraps, testing::ValuesIn(traps), caseName);

/// Keys and values that are what they seem to be at all sizes that are tried, and not at others.
const RespelledCase switches[] = {
    {"where_a_square_is_1369", R"(
  n_@ = Constant <value_int = 1369> ()
  square_@ = Mul (p, p)
  if_@ = Equal (square_@, n_@)
  other_@ = Concat <axis = 2> (f_@, past_@)
  a_@ = Where (if_@, other_@, j_@)
  c_@ = Identity (a_@))"},
    {"with_many_rows_and_tokens", R"(
  n_@ = Constant <value_int = 40> ()
  longer_@ = Greater (p, n_@)
  more_@ = Greater (s, n_@)
  if_@ = And (longer_@, more_@)
  other_@ = Neg (j_@)
  a_@ = Where (if_@, other_@, j_@)
  c_@ = Identity (a_@))"},
    {"blended_by_a_steep_function", R"(
  near_@ = Constant <value_float = 1368.5> ()
  steep_@ = Constant <value_float = 1000000.0> ()
  whole_@ = Constant <value_float = 1.0> ()
  long_@ = Cast <to = 1> (p)
  square_@ = Pow (long_@, factor)
  over_@ = Sub (square_@, near_@)
  far_@ = Mul (over_@, steep_@)
  gate_@ = Sigmoid (far_@)
  rest_@ = Sub (whole_@, gate_@)
  kept_@ = Mul (j_@, rest_@)
  turned_@ = Mul (r_@, gate_@)
  a_@ = Add (kept_@, turned_@)
  c_@ = Identity (a_@))"},
    {"with_many_tokens_after_many_rows", R"(
  n_@ = Constant <value_int = 40> ()
  longer_@ = Greater (p, n_@)
  more_@ = Greater (s, n_@)
  other_@ = Neg (j_@)
  inner_@ = Where (more_@, other_@, j_@)
  a_@ = Where (longer_@, inner_@, j_@)
  c_@ = Identity (a_@))"},
};

class RespelledSwitches : public RespelledCaches {
protected:
  void expectRefused(const std::string& text) {
    const RecoveredModel recovered =
        valueOrThrow(recoverModel(writtenModel(text, toolkit, folder), toolkit));
    EXPECT_FALSE(recovered.context->sites.empty());
    for (const analysis::AttentionSite& site : recovered.context->sites)
      EXPECT_FALSE(site.isMatched() && site.hasCache()) << site.id();
  }
};

TEST_P(RespelledSwitches, AreRefusedInKeysAndInValues) {
  const std::string changed = std::string(joined) + GetParam().text,
                    other = std::string(joined) + plainDecoder;
  expectRefused(modelText(ofSide(changed, 'k'), ofSide(other, 'v')));
  expectRefused(modelText(ofSide(other, 'k'), ofSide(changed, 'v')));
}

INSTANTIATE_TEST_SUITE_P(All, RespelledSwitches, testing::ValuesIn(switches), caseName);

} // namespace
} // namespace kvopt
