// The driver: fixpoint, dead nodes, endless rewriting, near misses.
#include "passes/pattern/rule_driver.h"

#include "support/diagnostic.h"
#include "tests/passes/graph_fixture.h"

#include <functional>

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// op(x) → whatever `build` makes of x.
class TestRule final : public Rule {
public:
  using Build = std::function<Value*(Value&, Rewriter&)>;
  TestRule(std::string ruleName, P (*makePattern)(const Var&), Build builder)
      : text(std::move(ruleName)), make(makePattern), build(std::move(builder)) {}
  llvm::StringRef name() const override { return text; }
  RuleGroup group() const override { return RuleGroup::Normalize; }
  P pattern() const override { return make(x); }
  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    return rewriter.replace(match.root().result(), *build(match[x], rewriter));
  }

private:
  std::string text;
  P (*make)(const Var&);
  Build build;
  Var x{"x"};
};

TestRule::Build wrapIn(const char* opName) {
  return [opName](Value& x, Rewriter& rewriter) {
    return &rewriter.create(opName, {&x}, {}, 1, "made").result();
  };
}
Value* itself(Value& x, Rewriter&) { return &x; }

class DriverTest : public GraphTest {
protected:
  void add(const char* name, P (*pattern)(const Var&), TestRule::Build build) {
    rules.add(std::make_unique<TestRule>(name, pattern, std::move(build)));
  }
  llvm::Expected<RuleDriverResult> drive(const RuleDriverOptions& options = {}) {
    std::vector<const RuleRegistry::Entry*> all;
    for (const RuleRegistry::Entry& entry : rules.all())
      all.push_back(&entry);
    return applyRules(graph(), all, journal, options);
  }
  unsigned driven(const RuleDriverOptions& options = {}) {
    auto result = drive(options);
    if (!result) {
      ADD_FAILURE() << takeDiagnostic(result.takeError()).str();
      return 0;
    }
    return result->applications;
  }
  std::string failure() {
    auto result = drive();
    if (result) {
      ADD_FAILURE() << "the rewriting ended";
      return "";
    }
    return takeDiagnostic(result.takeError()).str();
  }

  RuleRegistry rules;
  Journal journal;
};

TEST_F(DriverTest, WorksToAFixpoint) {
  add(
      "double-negation", [](const Var& x) { return op("Neg", {op("Neg", {x})}); }, itself);
  Value* value = &input("a");
  for (int i = 0; i < 7; ++i)
    value = &node("Neg", {value}, ("n" + std::to_string(i)).c_str());
  graph().addOutput(*value);
  EXPECT_EQ(driven(), 3u);
  EXPECT_EQ(graph().nodes().size(), 1u) << text();
  EXPECT_EQ(graph().outputs()[0]->name(), "n6");
  EXPECT_EQ(journal.applications("double-negation"), 3u);
  expectWellFormed();
  EXPECT_EQ(driven(), 0u) << "a second run finds nothing";
}

TEST_F(DriverTest, WhatAnEditElsewhereMakesPossibleIsFound) {
  // The Neg escapes to the Sigmoid, which dies only when the Mul, tried later, is dropped.
  add(
      "deep", [](const Var& x) { return op("Tanh", {op("Neg", {x})}); }, wrapIn("Softmax"));
  add(
      "drop",
      [](const Var& x) {
        return op("Mul", {x, any()});
      },
      itself);
  Value& a = input("a");
  Value& neg = node("Neg", {&a}, "neg");
  graph().addOutput(node("Tanh", {&neg}, "tanh"));
  graph().addOutput(node("Mul", {&a, &node("Sigmoid", {&neg}, "sigmoid")}, "mul"));
  EXPECT_EQ(driven(), 2u);
  EXPECT_EQ(graph().findValue("neg"), nullptr);
  EXPECT_EQ(graph().outputs()[0]->producer()->op(), OpName("Softmax"));
  expectWellFormed();
}

TEST_F(DriverTest, RulesWorkInSubgraphsAndSeeWhatIsAroundThem) {
  add(
      "double-negation", [](const Var& x) { return op("Neg", {escaping(op("Neg", {x}))}); },
      itself);
  Value& a = input("a");
  Value& negated = node("Neg", {&a}, "negated");
  graph().addOutput(holder(negated, "y"));
  EXPECT_EQ(driven(), 0u) << "subgraphs are not entered";
  std::vector<const RuleRegistry::Entry*> all;
  for (const RuleRegistry::Entry& entry : rules.all())
    all.push_back(&entry);
  auto result = applyRulesWithSubgraphs(graph(), all, journal);
  ASSERT_TRUE(static_cast<bool>(result));
  EXPECT_EQ(result->applications, 1u);
  // The output of the branch has to be a value of the branch.
  const Node& choice = *graph().outputs()[0]->producer();
  const Graph& branch = *choice.attribute("then_branch")->graphs().front();
  ASSERT_EQ(branch.nodes().size(), 1u);
  EXPECT_EQ(branch.nodes().front().op(), OpName("Identity"));
  EXPECT_EQ(branch.nodes().front().operand(0), &a);
  EXPECT_EQ(branch.outputs()[0]->name(), "inner_result");
}

TEST_F(DriverTest, WhatAnEnclosingGraphComputesIsNotReplacedFromInside) {
  Value& a = input("a");
  Value& outer = node("Neg", {&a}, "outer");
  Value& choice = holder(outer, "y");
  graph().addOutput(choice);
  Graph& branch = *choice.producer()->attributes().front().value.graphs().front();
  Rewriter rewriter(branch, "test", journal);
  Value& inner = rewriter.create("Relu", {&a}).result();
  EXPECT_EQ(&inner.graph(), &branch);
  auto failure = rewriter.replace(outer, inner);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ReasonCode::InSubgraph);
  rewriter.discard();
  EXPECT_EQ(branch.nodes().size(), 1u);
}

TEST_F(DriverTest, ErasesMatchedNodesThatNobodyReads) {
  add(
      "fuse", [](const Var& x) { return op("Relu", {escaping(op("Neg", {x}))}); }, wrapIn("Tanh"));
  Value& a = input("a");
  Value& before = node("Sigmoid", {&a}, "before");
  Value& dead = node("Neg", {&before}, "dead");
  Value& alive = node("Neg", {&before}, "alive");
  graph().addOutput(node("Relu", {&dead}, "first"));
  graph().addOutput(node("Relu", {&alive}, "second"));
  graph().addOutput(node("Add", {&alive, &a}, "reader"));
  EXPECT_EQ(driven(), 2u);
  EXPECT_EQ(graph().findValue("dead"), nullptr);
  EXPECT_EQ(graph().findValue("alive"), &alive) << "it is read elsewhere";
  EXPECT_EQ(graph().findValue("before"), &before);
  expectWellFormed();
}

TEST_F(DriverTest, ErasesWhatOnlyTheMatchRead) {
  add(
      "drop",
      [](const Var& x) {
        return op("Mul", {x, any()});
      },
      itself);
  Value& a = input("a");
  Value& factor = node("Neg", {&node("Tanh", {&a}, "t")}, "factor");
  graph().addOutput(node("Mul", {&a, &factor}, "out"));
  EXPECT_EQ(driven(), 1u);
  EXPECT_EQ(text(), "out = Identity(a)\n-> out\n");
}

TEST_F(DriverTest, TwoRulesThatUndoEachOtherAreNamed) {
  add(
      "bystander", [](const Var& x) { return op("Tanh", {x}); }, wrapIn("Sigmoid"));
  add(
      "to-neg", [](const Var& x) { return op("Relu", {x}); }, wrapIn("Neg"));
  add(
      "to-relu", [](const Var& x) { return op("Neg", {x}); }, wrapIn("Relu"));
  graph().addOutput(node("Relu", {&node("Tanh", {&input("a")}, "t")}, "out"));
  std::string message = failure();
  EXPECT_THAT(message, HasSubstr("undo each other"));
  EXPECT_THAT(message, HasSubstr("'to-neg'"));
  EXPECT_THAT(message, HasSubstr("'to-relu'"));
  EXPECT_THAT(message, Not(HasSubstr("bystander"))) << "it came to an end";
}

TEST_F(DriverTest, ARuleThatUndoesItselfIsNamedAlone) {
  add(
      "bystander", [](const Var& x) { return op("Tanh", {x}); }, wrapIn("Sigmoid"));
  add(
      "again", [](const Var& x) { return op("Relu", {x}); }, wrapIn("Relu"));
  graph().addOutput(node("Relu", {&node("Tanh", {&input("a")}, "t")}, "out"));
  std::string message = failure();
  EXPECT_THAT(message, HasSubstr("rule 'again' undoes itself"));
  EXPECT_THAT(message, Not(HasSubstr("bystander")));
}

TEST_F(DriverTest, ARefusedRewriteLeavesTheGraph) {
  // The replacement depends on what it replaces.
  class Cyclic final : public Rule {
    Var x{"x"}, y{"y"};
    llvm::StringRef name() const override { return "cyclic"; }
    RuleGroup group() const override { return RuleGroup::Raise; }
    P pattern() const override { return op("Add", {bind(y, escaping(op("Neg", {x}))), any()}); }
    std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
      Value& constant = rewriter.constant("extra", floatScalar(ElementType::Float, 1.0));
      Node& made = rewriter.create("Split", {match.root().operand(1), &constant}, {}, 2, "made");
      return rewriter.replace(
          {{&match.root().result(), &made.result(0)}, {&match[y], &made.result(1)}});
    }
  };
  rules.add(std::make_unique<Cyclic>());
  Value& neg = node("Neg", {&input("a")}, "neg");
  graph().addOutput(node("Add", {&neg, &node("Tanh", {&neg}, "mask")}, "out"));
  std::string before = text();
  NearMissList misses;
  RuleDriverOptions options;
  options.nearMisses = &misses;
  EXPECT_EQ(driven(options), 0u);
  EXPECT_EQ(text(), before);
  ASSERT_EQ(misses.ranked().size(), 1u);
  EXPECT_EQ(misses.ranked()[0].rule, "cyclic");
  EXPECT_EQ(misses.ranked()[0].root, "/out");
  EXPECT_EQ(misses.ranked()[0].failure.code, ReasonCode::WouldCreateCycle);
  EXPECT_THAT(misses.ranked()[0].failure.found, HasSubstr("mask <- neg"));
  EXPECT_EQ(driven(), 0u) << "without a listener, too";
}

TEST_F(DriverTest, NearMissesOfRewrittenRootsAreForgotten) {
  add(
      "never", [](const Var& x) { return op("Relu", {op("Softmax", {x})}); }, itself);
  add(
      "fuse", [](const Var& x) { return op("Relu", {op("Neg", {x})}); }, wrapIn("Sigmoid"));
  Value& a = input("a");
  graph().addOutput(node("Relu", {&node("Neg", {&a}, "neg")}, "fused"));
  graph().addOutput(node("Relu", {&node("Tanh", {&a}, "tanh")}, "missed"));
  NearMissList misses;
  RuleDriverOptions options;
  options.nearMisses = &misses;
  EXPECT_EQ(driven(options), 1u);
  ASSERT_EQ(misses.ranked().size(), 2u) << "both rules, at the root that is left";
  for (const NearMiss& left : misses.ranked()) {
    EXPECT_EQ(left.root, "/missed");
    EXPECT_EQ(left.matched, 1u);
    EXPECT_EQ(left.failure.found, "Tanh");
  }
}

TEST_F(DriverTest, TheBudgetIsCountedWithoutAListener) {
  add(
      "greedy",
      [](const Var& x) {
        P pattern = op("Softmax", {x});
        for (int i = 0; i < 8; ++i)
          pattern = commutative("Add", {pattern, any()});
        return pattern;
      },
      itself);
  Value* value = &input("a");
  for (int i = 0; i < 8; ++i)
    value = &node("Add", {value, value}, ("n" + std::to_string(i)).c_str());
  graph().addOutput(*value);
  RuleDriverOptions options;
  options.matcher.stepBudget = 50;
  auto result = drive(options);
  ASSERT_TRUE(static_cast<bool>(result)) << takeDiagnostic(result.takeError()).str();
  EXPECT_EQ(result->applications, 0u);
  EXPECT_GT(result->gaveUp, 0u);
}

TEST_F(DriverTest, RulesAreTriedInTheGivenOrder) {
  add(
      "first", [](const Var& x) { return op("Relu", {x}); }, wrapIn("Sigmoid"));
  add(
      "second", [](const Var& x) { return op("Relu", {x}); }, wrapIn("Tanh"));
  graph().addOutput(node("Relu", {&input("a")}, "out"));
  EXPECT_EQ(driven(), 1u);
  EXPECT_EQ(journal.entries.front().rule, "first");
  EXPECT_EQ(journal.entries.front().root, "/out");
}

TEST_F(DriverTest, SubgraphsAreNotEntered) {
  add(
      "neg", [](const Var& x) { return op("Neg", {x}); }, wrapIn("Tanh"));
  graph().addOutput(holder(input("a"), "branch"));
  EXPECT_EQ(driven(), 0u);
}

} // namespace
} // namespace kvopt
