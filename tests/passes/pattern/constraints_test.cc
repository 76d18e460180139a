// Shape unification and predicates.
#include "tests/passes/graph_fixture.h"

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

using ::testing::HasSubstr;

class ConstraintsTest : public GraphTest {
protected:
  Var x{"x"}, y{"y"}, z{"z"};

  /// Matches Concat(a, b) with a and b of these types.
  std::optional<Match> unify(TensorType a, TensorType b, std::vector<std::string> forX,
                             std::vector<std::string> forY) {
    std::string suffix = std::to_string(counter++);
    Value& left = graph().addInput("a" + suffix, std::move(a));
    Value& right = graph().addInput("b" + suffix, std::move(b));
    Value& root = node("Concat", {&left, &right}, ("root" + suffix).c_str());
    Constraints constraints;
    constraints.shape(x, std::move(forX));
    constraints.shape(y, std::move(forY));
    return tryMatch(op("Concat", {x, y}), root, constraints);
  }
  unsigned counter = 0;
};

TEST_F(ConstraintsTest, NamesBindAndRepeat) {
  auto match = unify(floats({"batch", "4"}), floats({"batch", "8"}), {"B", "M"}, {"B", "N"});
  ASSERT_TRUE(match);
  EXPECT_EQ(match->dim("B").str(), "batch");
  EXPECT_EQ(match->dim("M").value(), 4);
  EXPECT_EQ(match->dim("N").value(), 8);
  EXPECT_TRUE(match->dim("Q").isUnknown());
}

TEST_F(ConstraintsTest, AMismatchNamesAxisAndExtents) {
  EXPECT_FALSE(unify(floats({"batch", "4"}), floats({"batch", "8"}), {"B", "M"}, {"B", "M"}));
  EXPECT_EQ(miss.failure.code, ReasonCode::ShapeMismatch);
  EXPECT_EQ(miss.failure.node, "b0");
  EXPECT_THAT(miss.failure.expected, HasSubstr("M = 4 on axis 1"));
  EXPECT_EQ(miss.failure.found, "float[batch, 8]");
  EXPECT_EQ(miss.matched, 1u) << "the whole structure had matched";
}

TEST_F(ConstraintsTest, DifferentSymbolsAreNotProvedEqual) {
  EXPECT_FALSE(unify(floats({"s"}), floats({"t"}), {"S"}, {"S"}));
  EXPECT_EQ(miss.failure.code, ReasonCode::ShapeMismatch);
}

TEST_F(ConstraintsTest, NumbersStandForThemselves) {
  EXPECT_TRUE(unify(floats({"1"}), floats({"n"}), {"1"}, {"N"}));
  EXPECT_FALSE(unify(floats({"2"}), floats({"n"}), {"1"}, {"N"}));
  EXPECT_FALSE(unify(floats({"m"}), floats({"n"}), {"1"}, {"N"}));
}

TEST_F(ConstraintsTest, Expressions) {
  auto sum = unify(floats({"past", "new"}), floats({"past + new"}), {"P", "S"}, {"P + S"});
  EXPECT_TRUE(sum);
  EXPECT_TRUE(unify(floats({"2", "4"}), floats({"8"}), {"G", "N"}, {"G*N"}));
  EXPECT_TRUE(unify(floats({"g", "n"}), floats({"n*g"}), {"G", "N"}, {"G*N"}));
  EXPECT_FALSE(unify(floats({"2", "4"}), floats({"9"}), {"G", "N"}, {"G*N"}));
  EXPECT_EQ(miss.failure.code, ReasonCode::ShapeMismatch);
}

TEST_F(ConstraintsTest, UnknownExtentsAreNoProof) {
  EXPECT_TRUE(unify(floats({"?"}), floats({"n"}), {"M"}, {"N"})) << "used once, nothing to prove";
  EXPECT_FALSE(unify(floats({"?"}), floats({"?"}), {"N"}, {"N"}));
  EXPECT_EQ(miss.failure.code, ReasonCode::ShapeUnknown);
  EXPECT_FALSE(unify(floats({"n"}), floats({"?"}), {"N"}, {"N"}));
  EXPECT_EQ(miss.failure.code, ReasonCode::ShapeUnknown);
  EXPECT_FALSE(unify(floats({"?"}), floats({"1"}), {"1"}, {"1"}));
  EXPECT_EQ(miss.failure.code, ReasonCode::ShapeUnknown);
  EXPECT_FALSE(unify(floats({"n"}), floats({"n"}), {"N"}, {"N*Q"})) << "Q is bound nowhere";
  EXPECT_EQ(miss.failure.code, ReasonCode::ShapeUnknown);
}

TEST_F(ConstraintsTest, Ranks) {
  EXPECT_FALSE(unify(TensorType(ElementType::Float), floats({"n"}), {"M"}, {"N"}));
  EXPECT_EQ(miss.failure.code, ReasonCode::DynamicRank);
  EXPECT_FALSE(unify(floats({"a", "b"}), floats({"n"}), {"M"}, {"N"}));
  EXPECT_EQ(miss.failure.code, ReasonCode::ShapeMismatch);
  EXPECT_THAT(miss.failure.expected, HasSubstr("rank 1"));
}

TEST_F(ConstraintsTest, AVarThatIsNotBoundIsSkipped) {
  Value& root = node("Clip", {&input("a")}, "root");
  Constraints constraints;
  constraints.shape(y, {"1", "2", "3"});
  EXPECT_TRUE(tryMatch(op("Clip", {x, maybe(y)}), root, constraints));
}

TEST_F(ConstraintsTest, RefusalsQuoteTheSentence) {
  Value& root = node("Relu", {&input("a")}, "root");
  Constraints constraints;
  constraints.require(
      "H is a multiple of G", [](const Match&) { return false; }, ReasonCode::HeadCountUnproven);
  EXPECT_FALSE(tryMatch(op("Relu", {x}), root, constraints));
  EXPECT_EQ(miss.failure.code, ReasonCode::HeadCountUnproven);
  EXPECT_EQ(miss.failure.expected, "H is a multiple of G");
  EXPECT_EQ(miss.failure.node, "/root");

  root.producer()->setName("");
  EXPECT_FALSE(tryMatch(op("Relu", {x}), root, constraints));
  EXPECT_EQ(miss.failure.node, "root") << "a node without a name goes by its result's";
}

TEST_F(ConstraintsTest, InOrderAndLazily) {
  Value& root = node("Relu", {&input("a")}, "root");
  unsigned asked = 0;
  unsigned built = 0;
  Constraints constraints;
  constraints.check([&](const Match&, Refusal& refusal) {
    return refusal.because([&] {
      ++built;
      return MatchFailure{ReasonCode::DtypeMix, "n", "e", "f", "h"};
    });
  });
  constraints.require("never asked", [&](const Match&) { return ++asked != 0; });
  CompiledPattern compiled(op("Relu", {x}), constraints);
  EXPECT_FALSE(matchAt(compiled, *root.producer()));
  EXPECT_EQ(built, 0u) << "a reason costs nothing unless somebody listens";
  EXPECT_FALSE(matchAt(compiled, *root.producer(), {}, &miss));
  EXPECT_EQ(built, 1u);
  EXPECT_EQ(asked, 0u) << "the first refusal ends the check";
  EXPECT_EQ(miss.failure.str(), "dtype-mix at 'n': expected e, found f; hint: h");
}

} // namespace
} // namespace kvopt
