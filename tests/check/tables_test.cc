// Shared tables of positions may be any numbers, and lengths are compared.
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

/// Attention with `bias` [S,T] on its scores, which `nodes` compute from rows_of_keys, the number
/// of all tokens.
std::string biased(const char* model, const char* scores, const std::string& nodes,
                   const std::string& bias = "bias") {
  const bool isFirst = model == grown;
  return edited(
      edited(edited(model, isFirst ? "int64[1] one = {1}" : "int64[1] axis = {1}",
                    std::string(isFirst ? "int64[1] one = {1}" : "int64[1] axis = {1}") +
                        ", int64 n0 = {0}, int64 n1 = {1}, int64 n2 = {2}, int64 n60 = {60}, "
                        "int64 n61 = {61}, int64 n9998 = {9998}, float f0 = {0}, float f1 = {1}, "
                        "float f64 = {64}, float f5000 = {5000}, float hidden = {-inf}, int64[1] "
                        "r0 = {0}, int64[1] r1 = {1}, int64[1] r2 = {2}"),
             std::string(scores) + " = ", "unbiased = "),
      isFirst ? "weights = " : "top = ",
      "extents = Shape (present_key) rows_of_keys = Gather (extents, n2) "
      "keys = Range (n0, rows_of_keys, n1) " +
          nodes + " " + scores + " = Add (unbiased, " + bias + ") " +
          (isFirst ? "weights = " : "top = "));
}

CheckReport checkBiased(const std::string& before, const std::string& after,
                        const std::string& biasAfter = "bias") {
  return check(biased(grown, "scores", before), biased(respelled, "logits", after, biasAfter));
}

/// A table of biases by the distance, which is cut off at `most`.
std::string tableTo(const std::string& most) {
  return "least = Min (keys, " + most +
         ") numbers = Cast <to = 1> (least) "
         "angles = Div (numbers, f64) bias = Sin (angles)";
}

TEST(CheckTables, SharedTablesMayBeAnyNumbers) {
  // Where the table is cut off is beyond the scope, but it is so in both models.
  EXPECT_EQ(checkBiased(tableTo("n60"), tableTo("n60")).verdict(), Verdict::ProvedReduced);
  const CheckReport other = checkBiased(tableTo("n60"), tableTo("n61"));
  EXPECT_EQ(other.verdict(), Verdict::Tested);
  EXPECT_NE(weakest(other).find("beyond the scope"), std::string::npos) << weakest(other);
}

TEST(CheckTables, SharedTablesThatOneModelIgnoresAreNotProved) {
  for (const char* value : {"f1", "hidden"}) {
    const std::string nodes = "double = Add (keys, keys) isFar = Greater (double, n9998) "
                              "bias = Where (isFar, " +
                              std::string(value) + ", f0)";
    // The bias is zero in the scope.
    const CheckReport report = checkBiased(nodes, nodes, "f0");
    EXPECT_EQ(report.verdict(), Verdict::Tested) << value << weakest(report);
    EXPECT_NE(weakest(report).find("beyond the scope"), std::string::npos) << weakest(report);
  }
}

TEST(CheckTables, NumbersOfATableAreKnownWhereTheyMatter) {
  const std::string nodes = "numbers = Cast <to = 1> (keys) angles = Div (numbers, f64) "
                            "bias = Sin (angles)";
  const CheckReport report =
      checkBiased(nodes, nodes + " low = Sub (f1, f64) bounded = Max (bias, low)", "bounded");
  EXPECT_EQ(report.verdict(), Verdict::Tested) << weakest(report); // sines are not traced
}

TEST(CheckTables, MasksAreNotAnyNumbers) {
  const std::string nodes = "isLater = Greater (keys, n0) bias = Where (isLater, hidden, f0)";
  EXPECT_EQ(checkBiased(nodes, nodes + " twice = Add (bias, bias) more = Sub (twice, bias)", "more")
                .verdict(),
            Verdict::Different);
}

TEST(CheckTables, IntegersThatAreLeftOpenMustNotMatter) {
  auto withLogarithm = [](const std::string& more, const std::string& chosen) {
    return "numbers = Cast <to = 1> (keys) logarithms = Log (numbers) steps = Cast <to = 7> "
           "(logarithms) isFirst = Equal (keys, n0) more = " +
           more + " chosen = Where (isFirst, " + chosen + ") bias = Cast <to = 1> (chosen)";
  };
  const char* respelledMore = "Add (n2, steps) less = Sub (steps, n1) again = Sub (more, n1)";
  const std::string without = withLogarithm("Add (steps, n1)", "keys, more");
  const std::string with = withLogarithm("Add (steps, n1)", "more, keys");
  EXPECT_EQ(checkBiased(without, withLogarithm(respelledMore, "keys, again")).verdict(),
            Verdict::Tested);
  EXPECT_EQ(checkBiased(without, withLogarithm(respelledMore, "keys, less")).verdict(),
            Verdict::Different);
  const CheckReport report = checkBiased(with, withLogarithm(respelledMore, "again, keys"));
  EXPECT_EQ(report.verdict(), Verdict::Tested) << weakest(report);
}

TEST(CheckTables, RoundingBeyondTheScopeIsNotProved) {
  for (const std::string rounding :
       {"Floor (parts)", "Round (parts)", "Sign (less)", "Cast <to = 7> (parts)"}) {
    const std::string nodes =
        "numbers = Cast <to = 1> (keys) parts = Div (numbers, f5000) less = Sub (numbers, f5000) "
        "steps = " +
        rounding + " ";
    // All keys are on the first step in the scope.
    const CheckReport report =
        checkBiased(nodes + "first = Slice (steps, r0, r1) height = Sub (steps, first) "
                            "bias = Cast <to = 1> (height)",
                    nodes + "height = Sub (steps, steps) bias = Cast <to = 1> (height)");
    EXPECT_EQ(report.verdict(), Verdict::Tested) << rounding << weakest(report);
    EXPECT_NE(weakest(report).find(rounding.substr(0, 4)), std::string::npos) << weakest(report);
  }
}

TEST(CheckTables, LengthsThatAreEqualInTheScopeOnlyAreNotProved) {
  const std::string tail = " numbers = Cast <to = 1> (shown) bias = Sin (numbers)";
  const std::string first = "count = Add (rows_of_keys, n0) shown = Range (n0, count, n1)" + tail;
  const std::string other =
      "sum = Add (rows_of_keys, n0) count = Min (sum, n9998) shown = Range (n0, count, n1)" + tail;
  EXPECT_EQ(checkBiased(first, first).verdict(), Verdict::ProvedReduced);
  EXPECT_EQ(checkBiased(first, other).verdict(), Verdict::Tested);
}

/// The number of all tokens in the shape of rows that both models cut off at `most`.
std::string shownTo(const std::string& most) {
  return "bound = Reshape (" + most +
         ", r1) count = Reshape (rows_of_keys, r1) least = Min (count, bound) shown = Slice "
         "(present_key, r0, least, r2) sizes = Shape (shown) ";
}

TEST(CheckTables, ALengthThatABoundChangesBeyondTheScopeIsNotProved) {
  const std::string ofNumber = "factor = Cast <to = 1> (number) places = Cast <to = 1> (keys) "
                               "bias = Mul (places, factor)";
  const std::string ofRows = "number = Gather (sizes, n2) " + ofNumber;
  const std::string ofTokens = "number = Add (rows_of_keys, n0) " + ofNumber;
  // There is a row for each token, up to the bound.
  const CheckReport report = checkBiased(shownTo("n9998") + ofRows, shownTo("n9998") + ofTokens);
  EXPECT_EQ(report.verdict(), Verdict::Tested);
  EXPECT_NE(weakest(report).find("beyond the scope"), std::string::npos) << weakest(report);
  EXPECT_EQ(checkBiased(shownTo("n2") + ofRows, shownTo("n2") + ofTokens).verdict(),
            Verdict::Different);
  // Numbers of the rows do not depend on their number.
  EXPECT_EQ(checkBiased(shownTo("n9998") + ofTokens, shownTo("n9998") + ofTokens).verdict(),
            Verdict::ProvedReduced);
}

TEST(CheckTables, AMaskThatHidesBeyondTheScopeIsNotProved) {
  // Both models add the mask, and one of them adds it twice.
  const std::string nodes = "double = Add (keys, keys) isFar = Greater (double, n9998) "
                            "bias = Where (isFar, hidden, f0)";
  const CheckReport report = checkBiased(nodes, nodes + " twice = Add (bias, bias)", "twice");
  EXPECT_EQ(report.verdict(), Verdict::Tested) << weakest(report);
}

} // namespace
} // namespace kvopt::check
