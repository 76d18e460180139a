// Simple forms of expressions, and numbers folded in their element types.
#include "passes/analysis/mask/mask_expression.h"

#include <gtest/gtest.h>

#include <limits>

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

using Kind = MaskExpression::Kind;

class MaskExpressionTest : public testing::Test {
protected:
  const Dim i = IndexSpace::variable(IndexVariable::Row);
  const Dim j = IndexSpace::variable(IndexVariable::Key);
  const Dim past = Dim::symbol("P");
  MaskExpressions made{IndexSpace(Dim::symbol("B"), Dim::fixed(4), Dim::symbol("S"),
                                  Dim::symbol("P") + Dim::symbol("S"))};

  ExprRef key() { return made.integer(j); }
  ExprRef row() { return made.integer(i + past); }
  ExprRef causal() { return made.lessOrEqual(key(), row()); }
  /// Something boolean of which nothing is known.
  ExprRef unknown(const char* name) { return made.apply(name, {key()}, true); }
};

TEST_F(MaskExpressionTest, EqualExpressionsAreOne) {
  EXPECT_EQ(made.integer(i + past), made.integer(past + i));
  EXPECT_EQ(causal(), made.negate(made.less(row(), key())));
  EXPECT_EQ(causal(), made.less(key(), made.integer(i + past + Dim::fixed(1))));
  EXPECT_NE(made.opaque(nullptr, true), made.opaque(nullptr, true));
}

TEST_F(MaskExpressionTest, TrivialAtomsVanish) {
  EXPECT_TRUE(made.lessOrEqual(made.number(0), key())->is(Kind::True));
  EXPECT_TRUE(made.less(key(), made.number(0))->is(Kind::False));
  EXPECT_TRUE(made.equal(key(), made.number(-1))->is(Kind::False));
}

TEST_F(MaskExpressionTest, ConjunctionsHoldNothingImplied) {
  ExprRef before = made.less(key(), row());
  EXPECT_EQ(made.both(causal(), before), before);
  EXPECT_EQ(made.either(causal(), before), causal());
  EXPECT_TRUE(made.both(causal(), made.negate(causal()))->is(Kind::False));
  EXPECT_TRUE(made.either(causal(), made.negate(causal()))->is(Kind::True));
  EXPECT_EQ(made.either(before, made.equal(key(), row())), causal());
  ExprRef x = unknown("X");
  EXPECT_EQ(made.both(causal(), made.either(made.negate(causal()), x)), made.both(causal(), x));
  EXPECT_EQ(made.both(x, made.either(x, causal())), x);
}

TEST_F(MaskExpressionTest, NegationsStandAtAtoms) {
  ExprRef x = unknown("X");
  ExprRef negated = made.negate(made.both(causal(), x));
  EXPECT_TRUE(negated->is(Kind::Or));
  EXPECT_EQ(made.negate(negated), made.both(causal(), x));
}

TEST_F(MaskExpressionTest, ThreeEndsOfTwoValuesAreOneSelect) {
  ExprRef zero = made.number(0);
  ExprRef low = made.number(-1e9);
  ExprRef x = unknown("X");
  EXPECT_EQ(made.select(causal(), made.select(x, zero, low), low),
            made.select(made.both(causal(), x), zero, low));
  EXPECT_EQ(made.select(causal(), zero, made.select(x, zero, low)),
            made.select(made.either(causal(), x), zero, low));
  EXPECT_EQ(made.select(causal(), zero, zero), zero);
}

TEST_F(MaskExpressionTest, NumbersAreHeldByTheirType) {
  ExprRef low = made.number(-65504);
  EXPECT_EQ(*made.add(low, low, ElementType::Float16)->constant(),
            -std::numeric_limits<double>::infinity());
  EXPECT_EQ(*made.add(low, low, ElementType::Float)->constant(), -131008);
  // 0 * -inf is no number.
  ExprRef never = made.number(-std::numeric_limits<double>::infinity());
  EXPECT_FALSE(made.multiply(made.number(0), never, ElementType::Float)->constant().has_value());
}

TEST_F(MaskExpressionTest, TruthValuesBecomeNumbersAndBack) {
  ExprRef number = made.cast(causal(), ElementType::Bool, ElementType::Float);
  ExprRef rest = made.subtract(made.number(1), number, ElementType::Float);
  EXPECT_EQ(made.cast(rest, ElementType::Float, ElementType::Bool), made.negate(causal()));
  EXPECT_EQ(made.equal(number, made.number(0)), made.negate(causal()));
}

TEST_F(MaskExpressionTest, SixteenBitFloatsHoldNoPositions) {
  ExprRef wide = made.cast(key(), ElementType::Int64, ElementType::Float);
  EXPECT_EQ(wide, key());
  ExprRef narrow = made.cast(key(), ElementType::Int64, ElementType::Float16);
  EXPECT_FALSE(narrow->is(Kind::Integer));
}

TEST_F(MaskExpressionTest, FloatSumsKeepTheirOrder) {
  ExprRef x = made.apply("X", {key()}, false);
  ExprRef one = made.number(1);
  ExprRef sum = made.subtract(made.add(x, one, ElementType::Float), one, ElementType::Float);
  EXPECT_NE(sum, x);
  sum = made.subtract(made.add(x, one, ElementType::Int64), one, ElementType::Int64);
  EXPECT_EQ(sum, x);
}

TEST_F(MaskExpressionTest, DivisionNeedsAProof) {
  ExprRef extent = made.integer(Dim::symbol("P") + Dim::symbol("S"));
  ExprRef batch = made.integer(IndexSpace::variable(IndexVariable::Batch));
  ExprRef flat =
      made.add(made.multiply(batch, extent, ElementType::Int64), key(), ElementType::Int64);
  EXPECT_EQ(made.divide(flat, extent, ElementType::Int64), batch);
  EXPECT_EQ(made.remainder(flat, extent, ElementType::Int64), key());
  ExprRef other = made.integer(Dim::symbol("C"));
  EXPECT_FALSE(made.remainder(flat, other, ElementType::Int64)->is(Kind::Integer));
}

TEST_F(MaskExpressionTest, MaximaCompareByParts) {
  ExprRef distance = made.subtract(row(), key(), ElementType::Int64);
  ExprRef clipped = made.larger(distance, made.number(0), ElementType::Int64);
  ExprRef near = made.less(clipped, made.number(6));
  EXPECT_EQ(near, made.less(distance, made.number(6)));
  EXPECT_EQ(made.lessOrEqual(made.number(1), clipped), made.lessOrEqual(made.number(1), distance));
}

} // namespace
} // namespace kvopt
