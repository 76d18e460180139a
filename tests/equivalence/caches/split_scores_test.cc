// Decoders that multiply the query with cached and with new keys in two products, join the scores
// for one softmax, and sum what two parts of it give.
#include "support/format.h"
#include "tests/equivalence/caches/cache_plan.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace analysis;
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

/// How `o` [B,4,S,4] is made of the query `q`, the pasts [B,4,P,4], their columns `past_kt`, new
/// rows `k` and `v`, their columns `kt`, and the masks `seen` [S,S] and `hidden` [B,1,1,P].
struct SplitScores {
  const char* name;
  const char* text;
};

const SplitScores splitScores[] = {
    {"ScaledAndMaskedAfterTheConcat", R"(
  past_s = MatMul (q, past_kt)
  new_s = MatMul (q, kt)
  all_s = Concat <axis = -1> (past_s, new_s)
  scaled = Mul (all_s, half)
  masked = Where (all_seen, scaled, lowest)
  p = Softmax <axis = -1> (masked)
  past_p = Slice (p, l0, n, l3)
  new_p = Slice (p, n, end, l3)
  past_o = MatMul (past_p, past_v)
  new_o = MatMul (new_p, v)
  o = Add (past_o, new_o))"},
    {"ScaledAndMaskedBeforeTheConcat", R"(
  past_s = MatMul (q, past_kt)
  past_scaled = Mul (past_s, half)
  new_s = MatMul (q, kt)
  new_scaled = Mul (new_s, half)
  new_masked = Where (seen, new_scaled, lowest)
  all_s = Concat <axis = 3> (past_scaled, new_masked)
  p = Softmax <axis = -1> (all_s)
  widths = Concat <axis = 0> (n, m)
  past_p, new_p = Split <axis = -1> (p, widths)
  past_o = MatMul (past_p, past_v)
  new_o = MatMul (new_p, v)
  o = Add (new_o, past_o))"},
    {"NewKeysFirst", R"(
  q_half = Mul (q, half)
  q_again = Mul (q, half)
  new_s = MatMul (q_half, kt)
  new_masked = Add (new_s, bias)
  past_s = MatMul (q_again, past_kt)
  all_s = Concat <axis = -1> (new_masked, past_s)
  p = Softmax <axis = -1> (all_s)
  new_p = Slice (p, l0, m, l3)
  past_p = Slice (p, m, end, l3)
  past_o = MatMul (past_p, past_v)
  new_o = MatMul (new_p, v)
  o = Add (new_o, past_o))"},
};

const SplitScores threeParts = {"RowsThatComeBefore", R"(
  first_kt = Transpose <perm = [0, 1, 3, 2]> (first_k)
  first_s = MatMul (q, first_kt)
  past_s = MatMul (q, past_kt)
  new_s = MatMul (q, kt)
  new_masked = Where (seen, new_s, lowest)
  all_s = Concat <axis = -1> (first_s, past_s, new_masked)
  scaled = Mul (all_s, half)
  p = Softmax <axis = -1> (scaled)
  after_past = Add (n, l1)
  first_p = Slice (p, l0, l1, l3)
  past_p = Slice (p, l1, after_past, l3)
  new_p = Slice (p, after_past, end, l3)
  first_o = Mul (first_p, first_v)
  past_o = MatMul (past_p, past_v)
  new_o = MatMul (new_p, v)
  earlier_o = Add (first_o, past_o)
  o = Add (earlier_o, new_o))"};

std::string scoresText(const char* attention, const char* presents) {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, 4, P, 4] past_k, float[B, 4, P, 4] past_v, float[B, 4, 1, 4] first_k, float[B, 4, 1, 4] first_v, float[1, 1, 16] table,
         float[1, 16, 16] wq, float[1, 16, 16] wk, float[1, 16, 16] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[] all_k, float[] all_v)
<int64 i0 = {{0}}, int64 i1 = {{1}}, int64[1] l0 = {{0}}, int64[1] l1 = {{1}}, int64[1] l2 = {{2}}, int64[1] l3 = {{3}},
 int64[1] end = {{9223372036854775807}}, float half = {{0.5}}, float lowest = {{-3.4028234663852886e38}},
 float none = {{0.0}}>
{{
{hidden}
  qm = MatMul (hidden, wq)
  km = MatMul (hidden, wk)
  vm = MatMul (hidden, wv)
  heads = Constant <value_ints = [0, 0, 4, 4]> ()
  qr = Reshape (qm, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (qr)
  kr = Reshape (km, heads)
  k = Transpose <perm = [0, 2, 1, 3]> (kr)
  kt = Transpose <perm = [0, 2, 3, 1]> (kr)
  vr = Reshape (vm, heads)
  v = Transpose <perm = [0, 2, 1, 3]> (vr)
  past_kt = Transpose <perm = [0, 1, 3, 2]> (past_k)
  past_extents = Shape (past_k)
  n = Gather <axis = 0> (past_extents, l2)
  new_extents = Shape (input_ids)
  m = Gather <axis = 0> (new_extents, l1)
  count = Squeeze (m, l0)
  place = Range (i0, count, i1)
  row = Unsqueeze (place, l1)
  seen = LessOrEqual (place, row)
  bias = Where (seen, none, lowest)
  before = Squeeze (n, l0)
  total = Add (before, count)
  all_places = Range (i0, total, i1)
  all_rows = Add (row, before)
  all_seen = LessOrEqual (all_places, all_rows)
{presents}
{attention}
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  om = Reshape (ot, o_shape)
  logits = MatMul (om, wo)
}})",
                   named("hidden", decoderHidden), named("presents", presents),
                   named("attention", attention));
}

const char* wholePresents = R"(
  all_k = Concat <axis = -2> (past_k, k)
  all_v = Concat <axis = 2> (past_v, v))";

const char* newRows = R"(
  all_k = Identity (k)
  all_v = Identity (v))";

class SplitScoresTest : public testing::Test {
protected:
  void expectEqual(const SplitScores& spelling, const char* presents) {
    const std::string path = writtenModel(scoresText(spelling.text, presents), toolkit, folder);
    const DrivenModel exported = asExported(path, toolkit);
    for (const char* target : {"kvopt", "onnx24", "primitive"}) {
      SCOPED_TRACE(formatted("{} --to {}", spelling.name, target));
      const DrivenModel joined = rewritten(path, toolkit, "capacity=32", target);
      EXPECT_EQ(joined.manifest.caches.size(), 2U);
      for (int64_t batch : {1, 2}) {
        EquivalencePlan plan = cachePlan(oneUlpOfLogits);
        plan.batch = batch;
        const VerificationReport report = valueOrThrow(verifyModels(
            *exported.model, exported.manifest, *joined.model, joined.manifest, plan, 1, toolkit));
        EXPECT_TRUE(report.equal()) << verificationSummary(report);
        EXPECT_EQ(report.comparison.steps.front().caches.size(), 2U);
      }
    }
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(SplitScoresTest, AreOneAttentionOverAllKeys) {
  for (const SplitScores& spelling : splitScores)
    expectEqual(spelling, wholePresents);
}

TEST_F(SplitScoresTest, MayHandOutNewRowsOnly) {
  for (const SplitScores& spelling : splitScores)
    expectEqual(spelling, newRows);
}

TEST_F(SplitScoresTest, MayBeOfThreeParts) {
  const std::string path =
      writtenModel(scoresText(threeParts.text, wholePresents), toolkit, folder);
  const RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
  ASSERT_EQ(recovered.context->sites.size(), 1U);
  EXPECT_EQ(recovered.context->sites[0].rule, "raise-spelled-attention");
}

} // namespace
} // namespace kvopt
