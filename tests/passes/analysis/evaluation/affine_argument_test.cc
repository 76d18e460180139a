// Whether what was found at the tried sizes holds at all sizes.
#include "passes/analysis/evaluation/affine_argument.h"

#include "ir/model.h"
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "passes/analysis/interface/interface_facts.h"
#include "passes/pattern/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

using testing::HasSubstr;

/// A step that appends rows `k` to a cache: `keys` is made of the two.
class AffineArguments : public testing::Test {
protected:
  AffineArguments() { registerAll(ops); }

  /// The argument for `keys`, which is not followed past `fresh`. `where` is empty where it holds.
  void argue(const std::string& constants, const std::string& body, const char* fresh = "k") {
    model = llvm::cantFail(readText(R"(<ir_version: 8, opset_import: ["" : 18]>
g (float[B, S, 8] x, float[B, 2, P, 4] past, int64[B, S] position_ids, int64[S] places)
  => (float[B, 2, T, 4] keys, float[B, 2, "P + S", 4] both)
<int64[4] cut = {0, 0, 2, 4}, int64 two = {2}, int64 zero = {0}, int64 one = {1},
 int64[1] zero1 = {0}, int64[1] one1 = {1}, int64[1] minus = {-1}, int64[3] axes = {0, 1, 3},
 int64[1] two1 = {2}, int64[1] end1 = {9223372036854775807})" +
                                        constants +
                                        R"(>
{
  given = Tanh (x)
  parted = Reshape (given, cut)
  k = Transpose <perm = [0, 2, 1, 3]> (parted)
  both = Concat <axis = 2> (past, k)
  pastShape = Shape (past)
  P1 = Gather (pastShape, two)
  newShape = Shape (k)
  S1 = Gather (newShape, two)
  bothShape = Shape (both)
  T1 = Gather (bothShape, two)
)" + body + "}\n",
                                    ops, "test"));
    Graph& graph = model->graph();
    graph.findValue("keys")->setType(TensorType(
        ElementType::Float, {Dim::symbol("B"), Dim::fixed(2), Dim::unknown(), Dim::fixed(4)}));
    llvm::cantFail(inferShapes(graph));
    const InterfaceFacts facts = readInterface(graph);
    StepEvaluations evaluations(graph, facts);
    ASSERT_TRUE(evaluations.points().hasGrowingPast());
    const AffineArgument argument = affineArgument(
        *graph.findValue("keys"), {graph.findValue("past"), graph.findValue(fresh)}, evaluations);
    where = argument.holds() ? "" : pattern::labelOf(*argument.broken->node);
    why = argument.holds() ? "" : argument.broken->reason;
  }

  OpRegistry ops;
  std::unique_ptr<Model> model;
  std::string where, why;
};

TEST_F(AffineArguments, HoldForRowsThatAreAppendedAndMoved) {
  argue("", "  keys = Identity (both)\n");
  EXPECT_EQ(where, "") << why;
  argue("", R"(  turned = Transpose <perm = [0, 2, 1, 3]> (both)
  keys = Transpose <perm = [0, 2, 1, 3]> (turned)
)");
  EXPECT_EQ(where, "") << why;
}

TEST_F(AffineArguments, EndAtAProductOfTwoLengths) {
  // Another map where P * P is 1369: at 37 rows, which is none of the sizes.
  argue(", int64 square = {1369}", R"(  squared = Mul (P1, P1)
  is = Equal (squared, square)
  other = Concat <axis = 2> (k, past)
  keys = Where (is, other, both)
)");
  EXPECT_EQ(where, "squared");
  EXPECT_THAT(why, HasSubstr("product of lengths"));
  // The same of elements of a list, which shape inference does not know.
  argue(", int64 square = {1369}", R"(  list = Range (zero, P1, one)
  counted = ReduceMax <keepdims = 0> (list)
  squared = Mul (counted, counted)
  is = Equal (squared, square)
  other = Concat <axis = 2> (k, past)
  keys = Where (is, other, both)
)");
  EXPECT_NE(where, "");
}

TEST_F(AffineArguments, TrySizesOnBothSidesOfAComparedLength) {
  argue(", int64 length = {37}", R"(  is = Equal (P1, length)
  other = Concat <axis = 2> (k, past)
  keys = Where (is, other, both)
)");
  EXPECT_EQ(where, "") << "37 rows are tried: " << why;
  argue(", int64 length = {100000}", R"(  is = Greater (P1, length)
  other = Concat <axis = 2> (k, past)
  keys = Where (is, other, both)
)");
  EXPECT_EQ(where, "is") << "so many rows are not tried";
  EXPECT_THAT(why, HasSubstr("at no tried size it is true"));
}

TEST_F(AffineArguments, HoldForAWindowThatIsTriedBelowAndAbove) {
  argue(", int64 window = {4096}", R"(  first = Sub (T1, window)
  start = Max (first, zero)
  starts = Unsqueeze (start, zero1)
  keys = Slice (both, starts, end1, two1)
)");
  EXPECT_EQ(where, "") << why;
  argue(", int64[1] last = {-4096}", "  keys = Slice (both, last, end1, two1)\n");
  EXPECT_EQ(where, "") << why;
  argue(", int64[1] last = {-100000}", "  keys = Slice (both, last, end1, two1)\n");
  EXPECT_EQ(where, "keys") << "no size has so many rows";
}

TEST_F(AffineArguments, EndAtARestOfADivisionByALength) {
  // All rows, turned by as many as there are: the quotient is 1, but nothing says so.
  argue("", R"(  all = Range (zero, T1, one)
  moved = Add (all, T1)
  at = Mod (moved, T1)
  keys = Gather <axis = 2> (both, at)
)");
  EXPECT_EQ(where, "at");
  EXPECT_THAT(why, HasSubstr("remainder of a division"));
}

TEST_F(AffineArguments, TryTwoQuotientsOfADivisionByAConstant) {
  argue(", int64 eight = {8}", R"(  all = Range (zero, T1, one)
  rest = Mod (all, eight)
  whole = Div (all, eight)
  back = Mul (whole, eight)
  at = Add (back, rest)
  keys = Gather <axis = 2> (both, at)
)");
  EXPECT_EQ(where, "") << why;
  argue(", int64 many = {100000}", R"(  all = Range (zero, T1, one)
  at = Mod (all, many)
  keys = Gather <axis = 2> (both, at)
)");
  EXPECT_EQ(where, "at") << "no size has as many rows as the divisor says";
}

TEST_F(AffineArguments, CombineSizesThatOperatorsChooseBy) {
  // Each of the two is true at some size, but both are at none.
  const char* compared = R"(  longPast = Greater (P1, length)
  longStep = Greater (S1, length)
  other = Concat <axis = 2> (k, past)
)";
  argue(", int64 length = {40}", std::string(compared) + R"(  is = And (longPast, longStep)
  keys = Where (is, other, both)
)");
  EXPECT_EQ(where, "is");
  argue(", int64 length = {40}", std::string(compared) + R"(  inner = Where (longStep, other, both)
  keys = Where (longPast, inner, both)
)");
  EXPECT_NE(where, "");
  EXPECT_THAT(why, HasSubstr("while"));
}

TEST_F(AffineArguments, CombineSizesWithPlaces) {
  // Rows from 300 on, where a step has more than 40 tokens: such steps are tried after few rows.
  argue(", int64 length = {40}, int64 place = {300}", R"(  longStep = Greater (S1, length)
  rows = Range (zero, T1, one)
  late = GreaterOrEqual (rows, place)
  lateRows = Unsqueeze (late, axes)
  negated = Neg (both)
  inner = Where (longStep, negated, both)
  keys = Where (lateRows, inner, both)
)");
  EXPECT_NE(where, "");
  EXPECT_THAT(why, HasSubstr("while"));
}

TEST_F(AffineArguments, EndAtTypesThatDoNotHoldLengths) {
  argue(", int8 length = {20}", R"(  narrow = Cast <to = 3> (P1)
  is = Greater (narrow, length)
  other = Concat <axis = 2> (k, past)
  keys = Where (is, other, both)
)");
  EXPECT_EQ(where, "narrow") << "129 rows become a negative number";
  EXPECT_THAT(why, HasSubstr("cannot represent"));
  argue(", int32 length = {20}", R"(  narrow = Cast <to = 6> (P1)
  is = Greater (narrow, length)
  other = Concat <axis = 2> (k, past)
  keys = Where (is, other, both)
)");
  EXPECT_EQ(where, "") << why;
}

TEST_F(AffineArguments, HoldForReshapesAtWholeAxes) {
  argue(", int64[3] flat = {0, -1, 4}, int64[4] heads = {0, 2, -1, 4}",
        R"(  joined = Reshape (past, flat)
  cutAgain = Reshape (joined, heads)
  keys = Concat <axis = 2> (cutAgain, k)
)");
  EXPECT_EQ(where, "") << why;
  // The same elements under [P, 2] instead of [2, P].
  argue(", int64[4] mixed = {0, -1, 2, 4}, int64[4] heads = {0, 2, -1, 4}",
        R"(  scrambled = Reshape (past, mixed)
  sorted = Reshape (scrambled, heads)
  keys = Concat <axis = 2> (sorted, k)
)");
  EXPECT_NE(where, "");
  EXPECT_THAT(why, HasSubstr("whole axes"));
}

TEST_F(AffineArguments, EndAtOperatorsThatAreNotListed) {
  argue("", R"(  count = Unsqueeze (T1, zero1)
  ones = ConstantOfShape <value = int64[1] {1}> (count)
  found = NonZero (ones)
  at = Squeeze (found, zero1)
  keys = Gather <axis = 2> (both, at)
)");
  EXPECT_EQ(where, "found");
  EXPECT_THAT(why, HasSubstr("not known to be affine"));
  argue(", int64[8] table = {0, 1, 2, 3, 4, 5, 6, 6}", R"(  all = Range (zero, T1, one)
  seven = Constant <value_int = 7> ()
  short = Min (all, seven)
  at = Gather (table, short)
  keys = Gather <axis = 2> (both, at)
)");
  EXPECT_EQ(where, "at");
  EXPECT_THAT(why, HasSubstr("table"));
}

TEST_F(AffineArguments, HoldForSelectionsByComparisonsOfPlaces) {
  // One-hot selections of rows: any size has both outcomes.
  const char* selected = R"(  rows = Range (zero, T1, one)
  column = Unsqueeze (places, one1)
  at = Equal (column, rows)
  ones = Cast <to = 1> (at)
  turned = Transpose <perm = [1, 0]> (ones)
  written = MatMul (turned, k)
)";
  argue("", std::string(selected) + R"(  later = Less (rows, P1)
  hit = Unsqueeze (later, axes)
  keys = Where (hit, both, written)
)");
  EXPECT_EQ(where, "") << why;
  argue("", std::string(selected) + R"(  any = ReduceMax <keepdims = 0> (ones, zero1)
  hit = Cast <to = 9> (any)
  hit4 = Unsqueeze (hit, axes)
  keys = Where (hit4, written, both)
)");
  EXPECT_EQ(where, "any") << "maxima along an axis are not listed";
}

TEST_F(AffineArguments, HoldForIndicesFromInputs) {
  argue("", R"(  negative = Less (places, zero)
  fromEnd = Add (places, S1)
  at = Where (negative, fromEnd, places)
  keys = Gather <axis = 2> (both, at)
)");
  EXPECT_EQ(where, "") << why;
}

TEST_F(AffineArguments, StopAtTheSources) {
  // What the new rows are computed by does not matter.
  argue("", R"(  angles = Cast <to = 1> (position_ids)
  sines = Sin (angles)
  each = Unsqueeze (sines, minus)
  scaled = Mul (given, each)
  cutScaled = Reshape (scaled, cut)
  rotated = Transpose <perm = [0, 2, 1, 3]> (cutScaled)
  keys = Concat <axis = 2> (past, rotated)
)",
        "rotated");
  EXPECT_EQ(where, "") << why;
}

} // namespace
} // namespace kvopt
