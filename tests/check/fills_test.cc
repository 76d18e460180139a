// Fills of masks are minus infinity in a softmax only, and elements without a value are not hidden
// silently.
#include "tests/check/checked_models.h"

namespace kvopt::check {
namespace {

/// A model that computes `result`, where F is the fill and X is replaced by a value [B,S,4].
CheckReport checkFilled(const std::string& before, const std::string& after,
                        const std::string& fill = "-1e30") {
  auto modelOf = [&](const std::string& nodes) {
    return read(R"(<ir_version: 8, opset_import: ["" : 24, "com.microsoft" : 1]>
g (float[B, S, 4] inputs_embeds, int64[B, T] attention_mask) => (result)
<int64 i0 = {0}, int64 i1 = {1}, int64[1] last = {-1}, int64[1] l1 = {1}, float three = {3},
 float zero = {0}, float one = {1}, float half = {0.5}, float tiny = {1e-30}, float minus = {-1},
 float hidden = {-inf}, float nothing = {nan}, float fill = {)" +
                fill + "}, float back = {" + fill.substr(1) + "}, float[4] row = {0, " + fill +
                R"(, 0, 0}, float[4] column = {0, nan, 0, 0}, float[4] gain = {1, 2, 3, 4}>
{
  x = Identity (inputs_embeds)
  y = Mul (x, three)
  e = Shape (x)
  count = Gather (e, i1)
  places = Range (i0, count, i1)
  queries = Unsqueeze (places, last)
  seen = LessOrEqual (places, queries)
  t = Transpose <perm = [0, 2, 1]> (x)
  scores = MatMul (x, t)
  others = Mul (scores, three)
)" + nodes + "}\n");
  };
  const auto first = modelOf(before), second = modelOf(after);
  const ir::Manifest none;
  if (!first || !second)
    return {};
  return checkModels({*first, none}, {*second, none});
}

/// Nodes with each X replaced.
std::string with(std::string nodes, const std::string& value) {
  for (size_t at = 0; (at = nodes.find('X', at)) != std::string::npos; at += value.size())
    nodes.replace(at, 1, value);
  return nodes;
}

TEST(CheckFills, AFillOutsideOfASoftmaxIsANumber) {
  constexpr const char* fills[] = {"-1e4", "-2e4", "-65504", "-1e9", "-3.4028235e38"};
  size_t next = 0;
  for (const char* nodes :
       {"a = Add (X, fill) result = Add (a, back)", "a = Add (X, row) result = Tanh (a)",
        "a = Where (seen, fill, zero) s = ReduceSum (a, last) b = Add (X, row) "
        "result = Mul (b, three)",
        "a = Mul (gain, fill) b = Add (a, X) result = Mul (b, half)",
        "a = Add (X, row) result = LayerNormalization (a, gain)",
        "a = Add (X, row) result = ReduceSum (a, last)", "a = Sub (fill, X) result = Neg (a)",
        "a = Div (X, fill) result = Add (a, fill)",
        "a = Pad (X, wide, fill) result = Identity (a)"}) {
    const char* fill = fills[next++ % std::size(fills)];
    const std::string all =
        std::string("wide = Constant <value_ints = [0, 0, 0, 0, 0, 1]> () ") + nodes;
    EXPECT_GE(checkFilled(with(all, "x"), with(all, "y"), fill).verdict(), Verdict::Different)
        << fill << ": " << nodes;
    EXPECT_LE(
        checkFilled(with(all, "x"), "n = Neg (x) m = Neg (n) " + with(all, "m"), fill).verdict(),
        Verdict::ProvedReduced)
        << fill << ": " << nodes;
  }
}

TEST(CheckFills, AFillThatGoesAwayHidesNoKey) {
  for (const char* nodes :
       {"a = Add (X, fill) b = Add (a, back) result = Softmax (b)",
        "a = Add (back, X) b = Add (a, fill) result = Softmax (b)",
        "a = Add (X, fill) b = Mul (a, tiny) result = Softmax (b)",
        "a = Sub (X, back) b = Sub (a, fill) result = Softmax (b)",
        "h = Mul (back, half) a = Add (X, fill) b = Add (a, h) c = Add (b, h) result = Softmax (c)",
        "a = Add (X, fill) b = Add (a, back) q = Exp (b) r = ReduceSum (q, last) "
        "result = Div (q, r)",
        "a = Add (X, fill) n = Neg (a) result = Softmax (n)",
        "a = Mul (X, fill) b = Div (a, fill) result = Softmax (b)"})
    EXPECT_GE(checkFilled(with(nodes, "scores"), with(nodes, "others"), "-2e4").verdict(),
              Verdict::Different)
        << nodes;
}

TEST(CheckFills, AFillInASoftmaxIsAssumedToHideItsKey) {
  const std::string masked = "s = Where (seen, scores, hidden) result = Softmax (s)";
  for (const char* nodes :
       {"s = Where (seen, scores, fill) result = Softmax (s)",
        "m = Where (seen, zero, fill) s = Add (scores, m) result = Softmax (s)",
        "m = Where (seen, zero, fill) s = Add (scores, m) top = ReduceMax (s, last) "
        "d = Sub (s, top) q = Exp (d) r = ReduceSum (q, last) result = Div (q, r)"}) {
    const CheckReport report = checkFilled(masked, nodes);
    EXPECT_EQ(weakest(report), "proved-reduced: ") << nodes;
    EXPECT_TRUE(assumes(report, "a large negative number in a mask")) << nodes;
  }
}

TEST(CheckFills, ElementsWithoutAValueAreNotProved) {
  for (const char* nodes :
       {"v = Add (x, column) result = Add (v, X)", "result = Add (X, nothing)",
        "v = Mul (x, zero) w = Div (v, v) result = Add (w, X)",
        "v = Mul (x, zero) w = Mul (v, hidden) result = Add (w, X)",
        "w = Sqrt (minus) result = Add (w, X)", "w = Sub (hidden, hidden) result = Add (w, X)",
        "s = Where (seen, hidden, hidden) w = Softmax (s) result = MatMul (w, X)"}) {
    const CheckReport report = checkFilled(with(nodes, "x"), with(nodes, "y"));
    EXPECT_GE(report.verdict(), Verdict::Tested) << nodes;
    EXPECT_TRUE(report.verdict() != Verdict::Tested ||
                assumes(report, "not numbers in the first model"))
        << nodes;
  }
}

TEST(CheckFills, RowsOfPaddingThatSeeNoKeyAreAnAssumption) {
  const std::string scores = "m = Unsqueeze (attention_mask, l1) b = Cast <to = 9> (m) "
                             "both = And (b, seen) s = Where (both, scores, hidden) "
                             "w = Softmax (s) ";
  const CheckReport report =
      checkFilled(scores + "result = MatMul (w, x)",
                  scores + "none = IsNaN (w) v = Where (none, zero, w) result = MatMul (v, x)");
  EXPECT_EQ(weakest(report), "proved-reduced: ");
  EXPECT_TRUE(assumes(report, "rows that see no key"));
}

TEST(CheckFills, NumbersThatAreComparedWithNoNumberAreAnAssumption) {
  for (const char* look : {"IsNaN", "IsInf"}) {
    const std::string looked =
        std::string("other = ") + look + " (x) result = Where (other, zero, x)";
    EXPECT_TRUE(assumes(checkFilled(looked, "result = Identity (x)"), "hold finite numbers"))
        << look;
  }
  EXPECT_FALSE(assumes(checkFilled("result = Identity (x)", "n = Neg (x) result = Neg (n)"),
                       "hold finite numbers"));
}

} // namespace
} // namespace kvopt::check
