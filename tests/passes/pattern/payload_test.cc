// Plans of constraints: what a match keeps for the rewrite, and when it is made.
#include "passes/pattern/payload.h"

#include "passes/pattern/rule_driver.h"
#include "support/diagnostic.h"
#include "tests/passes/graph_fixture.h"

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

class PayloadTest : public GraphTest {
protected:
  Var x{"x"}, y{"y"};
  Payload<std::string> plan;
};

TEST_F(PayloadTest, TheMatchHoldsThePlan) {
  Value& root = node("Relu", {&input("a")}, "root");
  Constraints constraints;
  constraints.plan(plan, "a name", [&](const Match& match) { return match[x].name().str(); });
  const auto match = tryMatch(op("Relu", {x}), root, constraints);
  ASSERT_TRUE(match);
  EXPECT_EQ((*match)[plan], "a");
}

TEST_F(PayloadTest, WithoutAPlanTheSentenceRefuses) {
  Value& root = node("Relu", {&input("a")}, "root");
  Constraints constraints;
  constraints.plan(
      plan, "a name that can be told", [](const Match&) { return std::optional<std::string>(); },
      ReasonCode::ShapeUnknown);
  EXPECT_FALSE(tryMatch(op("Relu", {x}), root, constraints));
  EXPECT_EQ(miss.failure.code, ReasonCode::ShapeUnknown);
  EXPECT_EQ(miss.failure.expected, "a name that can be told");
}

TEST_F(PayloadTest, APlanMayRefuseWithAReasonOfItsOwn) {
  Value& root = node("Relu", {&input("a")}, "root");
  Constraints constraints;
  constraints.plan(plan, [](const Match&, Refusal& refusal) -> std::optional<std::string> {
    refusal.because([] { return MatchFailure{ReasonCode::DtypeMix, "n", "e", "f", "h"}; });
    return std::nullopt;
  });
  EXPECT_FALSE(tryMatch(op("Relu", {x}), root, constraints));
  EXPECT_EQ(miss.failure.str(), "dtype-mix at 'n': expected e, found f; hint: h");
}

TEST_F(PayloadTest, LaterConstraintsReadThePlan) {
  Value& root = node("Relu", {&input("a")}, "root");
  Constraints constraints;
  constraints.plan(plan, "a name", [&](const Match& match) { return match[x].name().str(); });
  std::string seen;
  constraints.require("the plan", [&](const Match& match) {
    seen = match[plan];
    return true;
  });
  EXPECT_TRUE(tryMatch(op("Relu", {x}), root, constraints));
  EXPECT_EQ(seen, "a");
}

TEST_F(PayloadTest, BacktrackingDiscardsThePlan) {
  // Of Add(a, b) the first order plans "a" and is then refused; the second has a plan of its own.
  Value& root = node("Add", {&input("a"), &input("b")}, "root");
  Constraints constraints;
  constraints.plan(plan, "a name", [&](const Match& match) { return match[x].name().str(); });
  constraints.require("x is b", [&](const Match& match) { return match[x].name() == "b"; });
  const auto match = tryMatch(commutative("Add", {x, y}), root, constraints);
  ASSERT_TRUE(match);
  EXPECT_EQ((*match)[plan], "b");
}

TEST_F(PayloadTest, PlansOfOneTypeAreToldApart) {
  Payload<std::string> other;
  Value& root = node("Add", {&input("a"), &input("b")}, "root");
  Constraints constraints;
  constraints.plan(plan, "a name", [&](const Match& match) { return match[x].name().str(); });
  constraints.plan(other, "a name", [&](const Match& match) { return match[y].name().str(); });
  const auto match = tryMatch(op("Add", {x, y}), root, constraints);
  ASSERT_TRUE(match);
  EXPECT_EQ((*match)[plan], "a");
  EXPECT_EQ((*match)[other], "b");
}

/// Neg(x) → Relu(x), where a plan for it is made; counts how often.
class CountingRule final : public Rule {
public:
  explicit CountingRule(unsigned& count) : made(count) {}
  llvm::StringRef name() const override { return "counting"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }
  P pattern() const override { return op("Neg", {x}); }
  void constraints(Constraints& c) const override {
    c.plan(hint, "a name for the result", [this](const Match&) {
      ++made;
      return std::string("planned");
    });
  }
  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& relu = rewriter.create("Relu", {&match[x]}, {}, 1, match[hint]);
    return rewriter.replace(match.root().result(), relu.result());
  }

private:
  Var x{"x"};
  Payload<std::string> hint;
  unsigned& made;
};

TEST_F(PayloadTest, ThePlanIsMadeOncePerMatch) {
  unsigned made = 0;
  RuleRegistry rules;
  rules.add(std::make_unique<CountingRule>(made));
  Value& first = node("Neg", {&input("a")}, "first");
  graph().addOutput(node("Tanh", {&node("Neg", {&first}, "second")}, "y"));
  Journal journal;
  auto result = applyRules(graph(), {&rules.all().front()}, journal);
  ASSERT_TRUE(static_cast<bool>(result));
  EXPECT_EQ(result->applications, 2u);
  EXPECT_EQ(made, 2u);
  EXPECT_THAT(text(), ::testing::AllOf(::testing::HasSubstr("planned = Relu"),
                                       ::testing::Not(::testing::HasSubstr("Neg"))));
}

} // namespace
} // namespace kvopt
