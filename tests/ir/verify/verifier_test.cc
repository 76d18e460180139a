// The verifier: one test a rule, with the smallest graph that breaks it.
#include "ir/verify/verifier.h"

#include "ir/op.h"
#include "support/diagnostic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

using testing::HasSubstr;

class Verifier : public testing::Test {
protected:
  Verifier() {
    define(registry, "Pair", 1).in("a").in("b?").out("first").out("second?");
    define(registry, "Many", 1).in("a*").out("c");
    define(registry, "Turn", 1).in("a").out("c").requiredAttr("perm", AttributeKind::Ints);
    define(registry, "Reshape", 1).in("a").out("c").view();
    define(registry, "test::Write", 1)
        .in("new")
        .in("past")
        .in("more?")
        .out("o")
        .out("present")
        .inPlace(1, 1);
    model.opsets[""] = 17;
    model.opsets["test"] = 1;
  }

  Value& input(const char* name) { return graph.addInput(name, TensorType(ElementType::Float)); }
  Node& write(Value& fresh, Value& past, llvm::StringRef suffix = "") {
    std::string out = ("out" + suffix).str();
    std::string present = ("present" + suffix).str();
    return graph.create("test::Write", {&fresh, &past}, {out, present});
  }
  Graph& branchOf(Node& node, llvm::StringRef attribute = "body") {
    std::vector<std::unique_ptr<Graph>> graphs;
    graphs.push_back(std::make_unique<Graph>(model.context(), model.opsets, &node));
    Graph& branch = *graphs.front();
    node.setAttribute(attribute, Attribute::ofGraphs(std::move(graphs), false));
    return branch;
  }
  std::string problem() {
    llvm::Error error = verify(model);
    if (error)
      return takeDiagnostic(std::move(error)).str();
    return "";
  }

  OpRegistry registry;
  Model model{registry};
  Graph& graph = model.graph();
};

TEST_F(Verifier, AcceptsAnEmptyGraphAndAWholeOne) {
  EXPECT_EQ(problem(), "");
  Value& x = input("x");
  Node& node = graph.create("Pair", {&x, nullptr}, {"y", ""});
  graph.create("my::Unknown", {&node.result(), &x, nullptr}, {"z"});
  graph.addOutput(node.result());
  graph.addOutput(x);
  EXPECT_EQ(problem(), "");
}

TEST_F(Verifier, OperandsAreDefinedBeforeTheyAreRead) {
  Value& x = input("x");
  Node& first = graph.create("Many", {&x}, {"y"});
  Node& second = graph.create("Many", {&first.result()}, {"z"});
  second.setName("early");
  graph.moveBefore(second, &first);
  EXPECT_THAT(problem(), HasSubstr("node 'early' (Many): value 'y': reads a value that is not "
                                   "defined before it"));
}

TEST_F(Verifier, OperandsAreVisible) {
  Value& x = input("x");
  Node& holder = graph.create("If", {&x}, {"y"});
  Graph& branch = branchOf(holder);
  Node& inner = branch.create("Many", {&x}, {"inside"});
  branch.addOutput(inner.result());
  EXPECT_EQ(problem(), "");
  llvm::Error alone = verify(branch);
  EXPECT_FALSE(alone) << takeDiagnostic(std::move(alone)).str();
  graph.create("Many", {&inner.result()}, {"leak"});
  EXPECT_THAT(problem(), HasSubstr("value 'inside'"));
}

TEST_F(Verifier, SubgraphsDoNotReadTheirHoldersResults) {
  Node& holder = graph.create("If", {&input("x")}, {"y"});
  branchOf(holder).create("Many", {&holder.result()}, {"inside"});
  EXPECT_THAT(problem(), HasSubstr("value 'y'"));
}

TEST_F(Verifier, NamesHideNothing) {
  Node& holder = graph.create("If", {&input("x")}, {"y"});
  Graph& branch = branchOf(holder);
  branch.create("Many", {}, {"y"}); // the holder's result is not visible inside
  EXPECT_EQ(problem(), "");
  branch.create("Many", {}, {"x"});
  EXPECT_THAT(problem(), HasSubstr("value 'x': hides a value"));
}

TEST_F(Verifier, CountsAreThoseOfTheDefinition) {
  Value& x = input("x");
  Node& node = graph.create("Pair", {&x}, {"y"});
  auto check = [&](llvm::ArrayRef<Value*> operands) {
    node.setOperands(operands);
    return problem();
  };
  EXPECT_EQ(check({&x, &x}), "");
  EXPECT_THAT(check({}), HasSubstr("has 0 operands, needs 1"));
  EXPECT_THAT(check({&x, &x, &x}), HasSubstr("has 3 operands, takes at most 2"));
  EXPECT_THAT(check({nullptr, &x}), HasSubstr("operand 'a' is missing"));
  check({&x});
  Node& many = graph.create("Many", {&x, &x, &x, &x}, {"m"});
  EXPECT_EQ(problem(), "");
  Node& noResult = graph.create("Pair", {&x}, {});
  EXPECT_THAT(problem(), HasSubstr("has 0 results, needs 1"));
  graph.erase(noResult);
  graph.create("Many", {&x}, {"m1", "m2"});
  EXPECT_THAT(problem(), HasSubstr("has 2 results, gives at most 1"));
  (void)many;
}

TEST_F(Verifier, AttributesAreThoseOfTheDefinition) {
  Node& node = graph.create("Turn", {&input("x")}, {"y"});
  EXPECT_THAT(problem(), HasSubstr("node 'y' (Turn): attribute 'perm' is missing"));
  node.setAttribute("perm", Attribute::ofInt(1));
  EXPECT_THAT(problem(), HasSubstr("'perm' is of kind int, not ints"));
  node.setAttribute("perm", Attribute::ofInts({1, 0}));
  EXPECT_EQ(problem(), "");
}

TEST_F(Verifier, UseListsHoldOnlyReadersOfTheGraph) {
  Value& x = input("x");
  graph.create("Many", {&x}, {"y"});
  Graph stray(model.context(), model.opsets);
  stray.create("Many", {&x}, {"outside"});
  EXPECT_THAT(problem(), HasSubstr("value 'x': has a reader that is not in the graph"));
}

TEST_F(Verifier, OutputsAreDefined) {
  Graph other(model.context(), model.opsets);
  Value& foreign = other.addInput("foreign", TensorType());
  graph.addOutput(foreign);
  EXPECT_THAT(problem(), HasSubstr("value 'foreign': a graph output"));
}

TEST_F(Verifier, FunctionsAreVerified) {
  model.functions.push_back(std::make_unique<Function>(model.context(), "my", "F"));
  Function& function = *model.functions.back();
  function.opsets[""] = 17;
  function.body.create("Turn", {&function.body.addInput("a", TensorType())}, {"b"});
  EXPECT_THAT(problem(), HasSubstr("note: in function 'F'"));
}

TEST_F(Verifier, InPlaceOperandsMayBeReadBefore) {
  Value& past = input("past");
  graph.create("Many", {&past}, {"before"});
  Node& node = write(input("x"), past);
  graph.create("Many", {&node.result(1)}, {"after"});
  graph.addOutput(node.result(1));
  EXPECT_EQ(problem(), "");
}

TEST_F(Verifier, NothingReadsAnOverwrittenOperandAfterwards) {
  Value& past = input("past");
  write(input("x"), past).setName("writer");
  graph.create("Many", {&past}, {"late"});
  std::string text = problem();
  EXPECT_THAT(text, HasSubstr("node 'writer' (test::Write): value 'past'"));
  EXPECT_THAT(text, HasSubstr("node of 'late' (Many) reads afterwards"));
}

TEST_F(Verifier, NothingReadsAnOverwrittenOperandInALaterSubgraph) {
  Value& past = input("past");
  write(input("x"), past);
  Node& holder = graph.create("If", {}, {"y"});
  branchOf(holder).create("Many", {&past}, {"inside"});
  EXPECT_THAT(problem(), HasSubstr("node of 'y' (If) reads afterwards"));
}

TEST_F(Verifier, OnlyOneNodeOverwritesAnOperand) {
  Value& past = input("past");
  Value& x = input("x");
  write(x, past, "1");
  write(x, past, "2");
  EXPECT_THAT(problem(), HasSubstr("value 'past'"));
}

TEST_F(Verifier, OverwrittenOperandsAreNotReadThroughAnotherOperand) {
  Value& past = input("past");
  write(past, past);
  EXPECT_THAT(problem(), HasSubstr("also reads otherwise"));
}

TEST_F(Verifier, OverwrittenOperandsAreNoOutputsAndNoConstants) {
  Value& x = input("x");
  Value& weights = graph.addConstant("w", int64Tensor({1}));
  Node& node = write(x, weights);
  EXPECT_THAT(problem(), HasSubstr("value 'w': overwrites a constant"));
  Node& constant = graph.create("Constant", {}, {"c"});
  constant.setAttribute("value", Attribute::ofTensor(int64Scalar(1)));
  graph.moveBefore(constant, &node);
  node.setOperand(1, &constant.result());
  EXPECT_THAT(problem(), HasSubstr("value 'c': overwrites a constant"));
  Value& past = input("past");
  node.setOperand(1, &past);
  EXPECT_EQ(problem(), "");
  graph.setInputDefault(past, int64Tensor({1}));
  EXPECT_THAT(problem(), HasSubstr("overwrites a constant"));
  Value& other = input("other");
  node.setOperand(1, &other);
  graph.addOutput(other);
  EXPECT_THAT(problem(), HasSubstr("value 'other': overwrites a graph output"));
}

TEST_F(Verifier, ABranchMayOverwriteWhatNobodyReadsAfterIt) {
  Value& past = input("past");
  Value& x = input("x");
  graph.create("Reshape", {&past}, {"early"});
  Node& holder = graph.create("If", {}, {"y"});
  branchOf(holder, "then_branch").create("test::Write", {&x, &past}, {"o", "p"});
  Graph& other = branchOf(holder, "else_branch");
  other.create("test::Write", {&x, &past}, {"o", "p"});
  EXPECT_EQ(problem(), "");
  Node& inside = other.create("Many", {&past}, {"inside"});
  EXPECT_THAT(problem(), HasSubstr("reads afterwards"));
  other.moveBefore(inside, &other.nodes().front());
  EXPECT_EQ(problem(), "");
  graph.create("Many", {&past}, {"late"});
  EXPECT_THAT(problem(), HasSubstr("node of 'late' (Many) reads afterwards"));
}

TEST_F(Verifier, ALoopOverwritesNothingFromOutside) {
  Value& past = input("past");
  Node& holder = graph.create("Loop", {}, {"y"});
  branchOf(holder).create("test::Write", {&input("x"), &past}, {"o", "p"});
  EXPECT_THAT(problem(), HasSubstr("value 'past': overwrites a value of another graph"));
}

TEST_F(Verifier, ViewsShareTheFateOfWhatTheyView) {
  Value& past = input("past");
  Node& view = graph.create("Reshape", {&past}, {"view"});
  Node& node = write(input("x"), past);
  EXPECT_EQ(problem(), "");
  Node& late = graph.create("Many", {&view.result()}, {"late"});
  EXPECT_THAT(problem(), HasSubstr("value 'view'"));
  late.setOperand(0, &past);
  node.setOperand(1, &view.result()); // the write goes through the view, the read to its source
  EXPECT_THAT(problem(), HasSubstr("value 'past'"));
}

} // namespace
} // namespace kvopt
