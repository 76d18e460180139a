// Which equalities in the scope are equalities at all sizes.
#include "check/regions/scope.h"
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

TEST(CheckSizes, ThresholdsBeyondTheScopeAreNotProved) {
  for (const char* condition :
       {"switches = Greater (batch, limit)",
        "less = Sub (batch, limit) switches = Greater (less, zero)",
        "less = Sub (limit, batch) switches = Less (less, zero)",
        "bound = Min (batch, limit) switches = Less (bound, batch)",
        "parts = Div (batch, limit) switches = Greater (parts, zero)",
        "sum = Add (limit, limit) large = Mul (sum, limit) switches = Greater (rows, large)"}) {
    const CheckReport report = check(grown, switched(condition));
    EXPECT_EQ(report.verdict(), Verdict::Tested) << condition << weakest(report);
    EXPECT_NE(weakest(report).find("beyond the scope"), std::string::npos) << weakest(report);
  }
  // The scope has steps around constants that are compared with numbers of rows.
  EXPECT_EQ(check(grown, switched("switches = Greater (rows, limit)")).verdict(),
            Verdict::Different);
  EXPECT_EQ(check(grown, switched("switches = Less (rows, zero)")).verdict(),
            Verdict::ProvedReduced);
}

/// The condition in the main graph, or in a function that it calls.
CheckReport switchedBy(const std::string& condition, bool isInFunction) {
  if (!isInFunction)
    return check(grown, switched(condition));
  const std::string call = switched("switches = own.condition (batch, limit, zero)");
  return check(grown, edited(call, R"(["" : 17])", R"(["" : 17, "own" : 1])") +
                          "<domain: \"own\", opset_import: [\"\" : 17]>\n"
                          "condition (batch, limit, zero) => (switches) {\n" +
                          condition + "\n}\n");
}

TEST(CheckSizes, ComparisonsThatConstantsOverruleAreNoThresholds) {
  const std::string overruled =
      "small = Constant <value_int = 1> () none = Constant <value_int = 0> () "
      "never = Less (small, none) above = Greater (batch, limit) "
      "switches = And (never, above)";
  EXPECT_EQ(switchedBy(overruled, true).verdict(), Verdict::ProvedReduced);
  // In the main graph, the comparison is a value of its own, which other nodes may stand for.
  EXPECT_EQ(switchedBy(overruled, false).verdict(), Verdict::Tested);
  EXPECT_EQ(switchedBy(edited(overruled, "Less (small", "Greater (small"), true).verdict(),
            Verdict::Tested);
  EXPECT_EQ(switchedBy(edited(overruled, "switches = And (never, above)",
                              "unseen = And (never, above) switches = Or (unseen, above)"),
                       true)
                .verdict(),
            Verdict::Tested);
}

TEST(CheckSizes, ConstantsThatOverruleEachOtherEnd) {
  for (const bool isInFunction : {false, true})
    EXPECT_EQ(switchedBy("small = Constant <value_int = 1> () none = Constant <value_int = 0> () "
                         "never = Less (small, none) again = Less (small, none) "
                         "switches = And (never, again)",
                         isInFunction)
                  .verdict(),
              Verdict::ProvedReduced);
}

/// Expects that a region is equal in the scope, and that a threshold prevents a proof.
void expectThreshold(const std::string& model) {
  const CheckReport report = check(grown, model);
  EXPECT_EQ(report.verdict(), Verdict::Tested) << model << weakest(report);
  EXPECT_NE(weakest(report).find("beyond the scope"), std::string::npos) << weakest(report);
}

/// Respelled attention whose result is divided at `place` along an axis; the part after it is
/// doubled.
std::string doubledFrom(int place, int axis) {
  const std::string constants = "int64[1] last = {3}, int64[1] first = {0}, int64[1] end = "
                                "{9223372036854775807}, int64[1] place = {" +
                                std::to_string(place) + "}, int64[1] along = {" +
                                std::to_string(axis) + "}";
  return edited(edited(respelled, "int64[1] last = {3}", constants), "attended = Div (sums, total)",
                "quotient = Div (sums, total) "
                "head = Slice (quotient, first, place, along) "
                "tail = Slice (quotient, place, end, along) double = Add (tail, tail) "
                "attended = Concat <axis = " +
                    std::to_string(axis) + "> (head, double)");
}

TEST(CheckSizes, SlicesBeyondTheScopeAreNotProved) {
  expectThreshold(doubledFrom(60, 0));
  expectThreshold(doubledFrom(60, 2));
  EXPECT_EQ(check(grown, doubledFrom(2, 0)).verdict(), Verdict::Different);
  EXPECT_EQ(check(grown, doubledFrom(3, 2)).verdict(), Verdict::Different);
  // The columns are 8 at all sizes.
  EXPECT_EQ(check(grown, doubledFrom(60, 3)).verdict(), Verdict::ProvedReduced);
  EXPECT_EQ(check(grown, doubledFrom(7, 3)).verdict(), Verdict::Different);
}

TEST(CheckSizes, EachOfSeveralConstantsIsAThreshold) {
  auto withLimits = [](const std::string& limits) {
    return edited(switched("exceeded = Greater (batch, limits) counts = Cast <to = 7> (exceeded) "
                           "most = ReduceMin <keepdims = 0> (counts) switches = Cast <to = 9> "
                           "(most)"),
                  "int64 limit = {30}", limits);
  };
  expectThreshold(withLimits("int64[2] limits = {2, 60}"));
  expectThreshold(withLimits("int64[8] limits = {0, 1, 2, 0, 1, 2, 0, 60}"));
  EXPECT_EQ(check(grown, withLimits("int64[2] limits = {1, 2}")).verdict(), Verdict::Different);
}

TEST(CheckSizes, StepsAroundAWindowOfOneTokenHaveTokens) {
  auto model =
      read(edited(edited(grown, R"(["" : 17])", R"(["" : 17, "com.microsoft" : 1])"), "rows = ",
                  "windowed = com.microsoft.GroupQueryAttention <num_heads = 1, "
                  "kv_num_heads = 1, local_window_size = 1> (inputs_embeds) rows = "));
  ASSERT_TRUE(model);
  const ir::Manifest manifest = growing();
  std::vector<std::string> leftOut;
  std::set<int64_t> covered;
  const std::vector<Step> scope = scopeOf({*model, manifest}, {*model, manifest}, leftOut, covered);
  EXPECT_EQ(covered.count(1), 1U);
  for (const Step& step : scope)
    EXPECT_TRUE(step.batch > 0 && step.past >= 0 && step.tokens > 0) << step.text();
}

TEST(CheckSizes, ALimitOfLengthsIsReached) {
  // Twice the number of tokens, or of batch rows, is compared.
  auto verdictOf = [](const std::string& number, int limit, ir::ManifestExtent rows,
                      const std::string& comparison = "Greater") {
    auto first = read(grown);
    auto second = read(edited(
        edited(buffered, "float scale = {0.5}",
               "float scale = {0.5}, float whole = {1}, float twice = {2}, int64[1] limit = {" +
                   std::to_string(limit) + "}"),
        "attended = MatMul (weights, values)",
        "batch = Gather (shape, zero) double = Add (" + number + ", " + number +
            ") switches = " + comparison +
            " (double, limit) factor = Where (switches, twice, whole) "
            "sums = MatMul (weights, values) attended = Mul (sums, factor)"));
    if (!first || !second)
      return Verdict::Skipped;
    const ir::Manifest before = growing(), after = inBuffers(ir::LengthFeed::PastLength, rows);
    return checkModels({*first, before}, {*second, after}).verdict();
  };
  EXPECT_EQ(verdictOf("end", 48, int64_t(24)), Verdict::ProvedReduced);
  EXPECT_EQ(verdictOf("end", 47, int64_t(24)), Verdict::Different);
  EXPECT_EQ(verdictOf("end", 34, int64_t(24), "Equal"), Verdict::Different);
  EXPECT_EQ(verdictOf("count", 47, int64_t(24)), Verdict::Different);
  EXPECT_EQ(verdictOf("batch", 47, int64_t(24)), Verdict::Tested);
  EXPECT_EQ(verdictOf("end", 2047, int64_t(1024)), Verdict::Tested);
  EXPECT_EQ(verdictOf("end", 9998, std::string("C")), Verdict::Tested);
}

/// Checks attention with a factor that `condition` selects. Both models also return a ring.
CheckReport checkWithRing(const std::string& condition, int64_t slots) {
  auto withRing = [](const std::string& text) {
    return edited(edited(text, "(float[B, S, 8] inputs_embeds",
                         "(float[B, 1, W, 8] past_ring, float[B, S, 8] inputs_embeds"),
                  "=> (float[B, 1, S, 8] attended, ",
                  "=> (float[B, 1, W, 8] present_ring, float[B, 1, S, 8] attended, ");
  };
  const std::string copies = "present_ring = Identity (past_ring) ";
  auto first = read(edited(withRing(grown), "rows = ", copies + "rows = "));
  auto second =
      read(edited(edited(withRing(switched(condition)), "new_rows = ", copies + "new_rows = "),
                  "int64 limit = {30}", "int64 limit = {9998}, int64 four = {4}"));
  if (!first || !second)
    return {};
  ir::Manifest manifest = growing();
  ir::ManifestCache ring = manifest.caches.front();
  ring.past = "past_ring";
  ring.present = "present_ring";
  ring.storage = ir::RingCache{};
  ring.shape[2] = slots;
  manifest.caches.push_back(ring);
  return checkModels({*first, manifest}, {*second, manifest});
}

TEST(CheckSizes, RemaindersRepeat) {
  const std::string turn = "turn = Mod (rows, four) ";
  EXPECT_EQ(checkWithRing(turn + "switches = Less (turn, zero)", 4).verdict(),
            Verdict::ProvedReduced);
  EXPECT_EQ(checkWithRing(turn + "switches = LessOrEqual (turn, zero)", 4).verdict(),
            Verdict::Different);
  // With a multiple of a size in addition.
  EXPECT_EQ(checkWithRing(turn + "switches = Less (turn, zero)", 64).verdict(),
            Verdict::ProvedReduced); // no remainder is negative
  for (const char* size : {"rows", "batch"})
    EXPECT_EQ(checkWithRing(turn + "sum = Add (turn, " + size +
                                ") large = Add (sum, sum) switches = Greater (large, limit)",
                            4)
                  .verdict(),
              Verdict::Tested)
        << size;
}

} // namespace
} // namespace kvopt::check
