// Decoders without caches whose masks say more than which keys are later ones, and whose positions
// are counted by masks, give with caches what they give for whole sequences.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

/// A decoder of one layer. `mask` computes `mask` from i [S, 1], j [S], `shown` (float [B, S]) and
/// position_ids; `place` computes `place` [B, S, 16] or [S, 16]; `more` changes `sum` to `last`.
std::string maskedText(llvm::StringRef mask, llvm::StringRef place = "  place = Gather (places, j)",
                       llvm::StringRef more = "  last = Identity (sum)") {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[B, S] input_ids, int64[B, S] attention_mask, int64[B, S] position_ids, float[50, 16] table,
         float[64, 16] places, float[3, 16, 16] experts, float[16, 3] router,
         float[16, 16] wq, float[16, 16] wk, float[16, 16] wv, float[16, 10] wo) => (float[B, S, 10] logits)
<int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64 three = {{3}}, int64[1] second = {{1}},
 int64[1] third = {{2}}, int64[1] last_axis = {{-1}}, int64[1] single = {{1}}, int64[2] head_axes = {{1, 2}},
 int64[4] split = {{0, 0, 4, 4}}, int64[3] joined = {{0, 0, 16}}, float half = {{0.5}}, float one_float = {{1}},
 float lowest = {{-3.4e38}}, float kept = {{0}}, float[4, 1, 1] slopes = {{0.5, 0.25, 0.125, 0.0625}},
 float[4, 4] by_distance = {{1, 2, 3, 4, 0.5, 0, 1, 2, 0, 0.25, 0, 3, -1, -2, -0.5, -3}},
 int64[2] rows = {{-1, 16}}>
{{
  extents = Shape (input_ids)
  count = Gather (extents, one)
  j = Range (zero, count, one)
  i = Unsqueeze (j, second)
  shown = Cast <to = 1> (attention_mask)
  shown_keys = Unsqueeze (shown, head_axes)
{}
  embedded = Gather (table, input_ids)
  hidden = Add (embedded, place)
  q = MatMul (hidden, wq)
  k = MatMul (hidden, wk)
  v = MatMul (hidden, wv)
  qr = Reshape (q, split)
  kr = Reshape (k, split)
  vr = Reshape (v, split)
  qt = Transpose <perm = [0, 2, 1, 3]> (qr)
  kt = Transpose <perm = [0, 2, 3, 1]> (kr)
  vt = Transpose <perm = [0, 2, 1, 3]> (vr)
  scores = MatMul (qt, kt)
  scaled = Mul (scores, half)
{}
  masked = Add (scaled, mask)
  p = Softmax <axis = -1> (masked)
  o = MatMul (p, vt)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  om = Reshape (ot, joined)
  sum = Add (hidden, om)
{}
  logits = MatMul (last, wo)
}})",
                   place.str(), mask.str(), more.str());
}

constexpr const char* causal = R"(
  later = Greater (j, i)
  mask = Where (later, lowest, kept))";

/// The same, and no key that the mask input hides.
constexpr const char* padded = R"(
  earlier = LessOrEqual (j, i)
  known = Cast <to = 9> (shown_keys)
  seen = And (earlier, known)
  hiding = Where (seen, kept, lowest))";

class AddedMasks : public testing::Test {
protected:
  RewriteResult added(const std::string& text, const std::string& target,
                      VerificationExtent extent) {
    RewriteRequest request;
    request.addCaches = true;
    request.form = valueOrThrow(presetForm(target));
    request.verification = extent;
    return valueOrThrow(rewrite(
        valueOrThrow(openModel(writtenModel(text, toolkit, folder), toolkit)), request, toolkit));
  }

  void expectEqual(const std::string& text) {
    for (const char* target : {"primitive", "onnx24"}) {
      SCOPED_TRACE(text + " --to " + target);
      const RewriteResult result = added(text, target, VerificationExtent::Full);
      const auto* model = std::get_if<RewrittenModel>(&result);
      ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
      ASSERT_TRUE(model->verification);
      EXPECT_TRUE(model->verification->equal()) << model->verification->summary(false);
      EXPECT_TRUE(runsOf(*model).comparison.tokensEqual);
      EXPECT_GT(runsOf(*model).comparison.steps.back().pastTokens, 0);
      EXPECT_EQ(model->manifest.caches.size(), 2U);
    }
  }

  void expectRefused(const std::string& text, const std::string& reason) {
    const RewriteResult result = added(text, "primitive", VerificationExtent::Off);
    const auto* refused = std::get_if<RefusedModel>(&result);
    ASSERT_TRUE(refused) << text;
    EXPECT_NE(refused->message.find(reason), std::string::npos) << refused->message;
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(AddedMasks, AddNumbersToScores) {
  const std::string masks[] = {
      // Slopes times places that are counted by the mask.
      std::string(padded) + R"(
  running = CumSum (shown, one)
  from_zero = Sub (running, one_float)
  of_shown = Mul (from_zero, shown)
  counted = Unsqueeze (of_shown, head_axes)
  sloped = Mul (slopes, counted)
  mask = Add (hiding, sloped))",
      std::string(padded) + R"(
  running = CumSum (attention_mask, one)
  from_zero = Sub (running, one)
  of_shown = Mul (attention_mask, from_zero)
  as_float = Cast <to = 1> (of_shown)
  counted = Unsqueeze (as_float, head_axes)
  sloped = Mul (counted, slopes)
  mask = Add (sloped, hiding))",
      // Slopes times distances.
      std::string(padded) + R"(
  distance = Sub (j, i)
  as_float = Cast <to = 1> (distance)
  sloped = Mul (as_float, slopes)
  mask = Add (hiding, sloped))",
  };
  for (const std::string& mask : masks)
    expectEqual(maskedText(mask));
  // A table of distances, the far ones in one class.
  expectEqual(maskedText(std::string(padded) + R"(
  distance = Sub (i, j)
  back = Max (distance, zero)
  class = Min (back, three)
  entries = Gather <axis = 0> (by_distance, class)
  by_head = Transpose <perm = [2, 0, 1]> (entries)
  mask = Add (hiding, by_head))"));
}

TEST_F(AddedMasks, AddFunctionsOfDistances) {
  for (const char* function : {"Softplus", "Relu", "Sqrt"}) {
    const std::string mask = formatted(R"({}
  distance = Sub (i, j)
  back = Max (distance, zero)
  as_float = Cast <to = 1> (back)
  bent = {} (as_float)
  lowered = Neg (bent)
  mask = Add (hiding, lowered))",
                                       padded, function);
    expectEqual(maskedText(mask));
  }
}

TEST_F(AddedMasks, HideKeysByPlace) {
  const char* conditions[] = {
      "  distance = Sub (i, j)\n  near = Less (distance, three)",
      "  next = Add (j, three)\n  near = Greater (next, i)",
      "  distance = Sub (i, j)\n  parity = Mod (distance, two)\n  near = Equal (parity, zero)",
  };
  for (const char* condition : conditions)
    expectEqual(maskedText(formatted(R"({}
{}
  both = And (seen, near)
  mask = Where (both, kept, lowest))",
                                     padded, condition)));
}

TEST_F(AddedMasks, HideKeysByPositionsThatAreFed) {
  expectEqual(maskedText(R"(
  of_rows = Unsqueeze (position_ids, third)
  per_head = Unsqueeze (of_rows, second)
  later = Greater (j, per_head)
  mask = Where (later, lowest, kept))",
                         "  place = Gather (places, position_ids)"));
}

TEST_F(AddedMasks, TakePositionsThatAreCountedByTheMask) {
  const std::string mask = std::string(padded) + "\n  mask = Identity (hiding)";
  expectEqual(maskedText(mask, R"(
  running = CumSum (attention_mask, one)
  of_shown = Mul (running, attention_mask)
  moved = Add (of_shown, one)
  place = Gather (places, moved))"));
  expectEqual(maskedText(mask, R"(
  as_narrow = Cast <to = 6> (attention_mask)
  running = CumSum <exclusive = 1> (as_narrow, one)
  place = Gather (places, running))"));
  // The mask itself, for each token.
  expectEqual(maskedText(mask, "  place = Gather (places, j)", R"(
  column = Unsqueeze (shown, last_axis)
  last = Mul (sum, column))"));
}

TEST_F(AddedMasks, AreRefusedWhereLaterTokensOrTheirNumberMatter) {
  const std::string mask = std::string(padded) + "\n  mask = Identity (hiding)";
  expectRefused(maskedText(mask, R"(
  running = CumSum <reverse = 1> (attention_mask, one)
  place = Gather (places, running))"),
                "tokens-mixed");
  expectRefused(maskedText(std::string(padded) + R"(
  from_end = Sub (j, count)
  as_float = Cast <to = 1> (from_end)
  sloped = Mul (as_float, slopes)
  mask = Add (hiding, sloped))"),
                "bias-unsupported");
  // Token ids are not known for all keys.
  expectRefused(maskedText(R"(
  unlike = Equal (input_ids, zero)
  pads = Unsqueeze (unlike, head_axes)
  later = Greater (j, i)
  hidden_keys = Or (later, pads)
  mask = Where (hidden_keys, lowest, kept))"),
                "tokens-mixed");
}

TEST_F(AddedMasks, LeaveExpertsThatTokensPick) {
  const std::string routed = R"(
  flat = Reshape (sum, rows)
  scored = MatMul (flat, router)
  best, expert = TopK <axis = -1> (scored, single))";
  const char* spellings[] = {
      R"(
  expert_matrix = GatherND (experts, expert)
  row = Unsqueeze (flat, second)
  product = MatMul (row, expert_matrix)
  result = Squeeze (product, second)
  whole = Reshape (result, joined_batch)
  last = Add (sum, whole))",
      R"(
  picked = GatherElements <axis = 1> (scored, expert)
  result = Mul (flat, picked)
  whole = Reshape (result, joined_batch)
  last = Add (sum, whole))",
      R"(
  nothing = Mul (scored, kept)
  chosen = ScatterElements <axis = 1> (nothing, expert, best)
  weight = ReduceSum (chosen, last_axis)
  result = Mul (flat, weight)
  whole = Reshape (result, joined_batch)
  last = Add (sum, whole))",
      // Numbers that are all the same, of every token of every batch row.
      R"(
  scored_extents = Shape (scored)
  no_weight = Expand (nothing_written, scored_extents)
  expert_extents = Shape (expert)
  ones = ConstantOfShape <value = float[1] {1}> (expert_extents)
  chosen = ScatterElements <axis = 1> (no_weight, expert, ones)
  weights = Mul (scored, chosen)
  weight = ReduceSum (weights, last_axis)
  result = Mul (flat, weight)
  whole = Reshape (result, joined_batch)
  last = Add (sum, whole))",
      R"(
  scored_extents = Shape (scored)
  no_weight = ConstantOfShape (scored_extents)
  expert_extents = Shape (expert)
  one_half = Constant <value = float {0.5}> ()
  halves = Expand (one_half, expert_extents)
  chosen = ScatterElements <axis = 1> (no_weight, expert, halves)
  doubled = Add (chosen, no_weight)
  hidden_experts = Cast <to = 9> (doubled)
  rest = Where (hidden_experts, no_weight, scored)
  weight = ReduceSum (rest, last_axis)
  result = Mul (flat, weight)
  whole = Reshape (result, joined_batch)
  last = Add (sum, whole))",
  };
  for (const char* spelling : spellings)
    expectEqual(maskedText(
        causal, "  place = Gather (places, j)",
        routed +
            "\n  joined_batch = Shape (sum)\n  nothing_written = Constant <value = float {0}> ()" +
            spelling));
  // Written over along the tokens.
  expectRefused(maskedText(causal, "  place = Gather (places, j)", routed + R"(
  chosen = ScatterElements <axis = 0> (scored, expert, best)
  weight = ReduceSum (chosen, last_axis)
  result = Mul (flat, weight)
  joined_batch = Shape (sum)
  whole = Reshape (result, joined_batch)
  last = Add (sum, whole))"),
                "tokens-mixed");
}

} // namespace
} // namespace kvopt
