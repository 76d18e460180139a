// Use lists, names, order, replacement, dead code, subgraphs.
#include "ir/graph.h"

#include "ir/op.h"
#include "ir/verify/verifier.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

class GraphTest : public testing::Test {
protected:
  OpRegistry ops;
  GraphContext context{ops};
  OpsetImports opsets{{"", 17}};
  Graph graph{context, opsets};

  Value& input(const char* name) {
    return graph.addInput(name, TensorType(ElementType::Float, {Dim::symbol("n")}));
  }
  std::vector<std::string> readers(const Value& value) {
    std::vector<std::string> names;
    for (const Use& use : value.uses())
      names.push_back(use.user().result().name().str() + ":" + std::to_string(use.operandIndex()));
    llvm::sort(names);
    return names;
  }
  std::vector<std::string> order() {
    std::vector<std::string> names;
    for (const Node& node : graph.nodes())
      names.push_back(node.result().name().str());
    return names;
  }
};

TEST_F(GraphTest, UseListsFollowOperands) {
  Value& x = input("x");
  Value& y = input("y");
  Node& sum = graph.create("Add", {&x, &x}, {"sum"});
  Node& product = graph.create("Mul", {&x, nullptr}, {"product"});
  EXPECT_EQ(readers(x), (std::vector<std::string>{"product:0", "sum:0", "sum:1"}));
  EXPECT_EQ(product.operand(1), nullptr);
  EXPECT_EQ(product.operand(7), nullptr);

  sum.setOperand(1, &y);
  EXPECT_EQ(readers(x), (std::vector<std::string>{"product:0", "sum:0"}));
  EXPECT_EQ(readers(y), (std::vector<std::string>{"sum:1"}));
  EXPECT_TRUE(y.hasOneUse());
  EXPECT_FALSE(x.hasOneUse());

  product.setOperands({&y, &x, &y});
  EXPECT_EQ(readers(y), (std::vector<std::string>{"product:0", "product:2", "sum:1"}));
  EXPECT_FALSE(y.hasOneUse());
}

TEST_F(GraphTest, NamesAreUniqueAtEveryInstant) {
  Value& x = input("x");
  graph.create("Relu", {&x}, {"relu"});
  Node& second = graph.createFresh("Relu", {&x}, 1);
  Node& third = graph.createFresh("Relu", {&x}, 1);
  EXPECT_EQ(second.result().name(), "relu_1");
  EXPECT_EQ(third.result().name(), "relu_2");
  EXPECT_EQ(graph.findValue("relu_2"), &third.result());

  graph.rename(third.result(), "other");
  EXPECT_EQ(graph.findValue("relu_2"), nullptr);
  EXPECT_EQ(graph.findValue("other"), &third.result());
  graph.erase(second);
  EXPECT_EQ(graph.findValue("relu_1"), nullptr);
}

TEST_F(GraphTest, FreshNamesAvoidEnclosingGraphsAndSubgraphs) {
  Value& x = input("x");
  Node& branch = graph.create("If", {&x}, {"chosen"});
  std::vector<std::unique_ptr<Graph>> bodies;
  bodies.push_back(std::make_unique<Graph>(context, opsets, &branch));
  Graph& body = *bodies.front();
  Node& inner = body.create("Relu", {&x}, {"inner"});
  body.addOutput(inner.result());
  branch.setAttribute("then_branch", Attribute::ofGraphs(std::move(bodies), false));

  EXPECT_EQ(graph.freshName("inner"), "inner_1");
  EXPECT_EQ(body.freshName("x"), "x_1");
  EXPECT_EQ(body.findValue("x"), nullptr);
  EXPECT_EQ(body.findValue("x", /*enclosing=*/true), &x);
  EXPECT_EQ(capturedValues(branch), (llvm::SmallVector<Value*, 4>{&x}));
  EXPECT_FALSE(x.hasOneUse()); // read by If and, captured, by its branch
}

TEST_F(GraphTest, OrderIsKeptThroughInsertionAndErasure) {
  Value& x = input("x");
  Node& a = graph.create("Relu", {&x}, {"a"});
  Node& c = graph.create("Relu", {&x}, {"c"});
  EXPECT_TRUE(a.comesBefore(c));
  Node& b = graph.create("Relu", {&x}, {"b"}, &c);
  EXPECT_TRUE(a.comesBefore(b));
  EXPECT_TRUE(b.comesBefore(c));
  EXPECT_FALSE(c.comesBefore(b));
  Node& d = graph.create("Relu", {&x}, {"d"});
  EXPECT_TRUE(c.comesBefore(d));
  graph.moveBefore(d, &a);
  EXPECT_TRUE(d.comesBefore(a));
  EXPECT_EQ(order(), (std::vector<std::string>{"d", "a", "b", "c"}));

  for (Node& node : llvm::make_early_inc_range(graph.nodes()))
    if (node.result().name() != "b")
      graph.erase(node);
  EXPECT_EQ(order(), (std::vector<std::string>{"b"}));
}

TEST_F(GraphTest, AnyNumberOfNodesFitsInOnePlace) {
  Value& x = input("x");
  Node& first = graph.create("Relu", {&x}, {"first"});
  for (int i = 0; i < 2000; ++i)
    graph.createFresh("Relu", {&x}, 1, nullptr, "other");
  ASSERT_TRUE(first.comesBefore(*graph.nodeAfter(first)));
  const uint64_t before = context.visits();
  constexpr uint64_t count = 1000;
  std::vector<Node*> put(1, &first);
  for (uint64_t i = 0; i < count; ++i) {
    put.push_back(&graph.createFresh("Relu", {&x}, 1, graph.nodeAfter(*put.back()), "put"));
    ASSERT_TRUE(put[put.size() - 2]->comesBefore(*put.back()));
  }
  Node* last = nullptr; // right behind the first, whatever was put there before
  for (uint64_t i = 0; i < count; ++i) {
    Node& node = graph.createFresh("Relu", {&x}, 1, graph.nodeAfter(first), "put");
    ASSERT_TRUE(first.comesBefore(node));
    ASSERT_TRUE(node.comesBefore(last ? *last : *put[1]));
    last = &node;
  }
  // The others are numbered again now and then, not for every one.
  EXPECT_LT(context.visits() - before, 64 * count);
  uint64_t place = 0;
  const Node* previous = nullptr;
  for (const Node& node : graph.nodes()) {
    EXPECT_TRUE(!previous || previous->comesBefore(node)) << place;
    previous = &node;
    ++place;
  }
}

TEST_F(GraphTest, NodesOfOnePlaceAreArranged) {
  Value& x = input("x");
  std::vector<Node*> nodes;
  for (const char* name : {"a", "b", "c", "d", "e"})
    nodes.push_back(&graph.create("Relu", {&x}, {name}));
  EXPECT_TRUE(nodes[0]->comesBefore(*nodes[4]));
  graph.arrange({nodes[3], nodes[1], nodes[2]}, nodes[4]);
  EXPECT_EQ(order(), (std::vector<std::string>{"a", "d", "b", "c", "e"}));
  EXPECT_TRUE(nodes[0]->comesBefore(*nodes[3]));
  EXPECT_TRUE(nodes[3]->comesBefore(*nodes[1]));
  EXPECT_TRUE(nodes[2]->comesBefore(*nodes[4]));
  graph.arrange({nodes[4], nodes[2]}, nullptr);
  EXPECT_EQ(order(), (std::vector<std::string>{"a", "d", "b", "e", "c"}));
  EXPECT_TRUE(nodes[4]->comesBefore(*nodes[2]));
  EXPECT_EQ(graph.firstNode(), nodes[0]);
  EXPECT_EQ(graph.nodeAfter(*nodes[0]), nodes[3]);
  EXPECT_EQ(graph.nodeAfter(*nodes[2]), nullptr);
}

TEST_F(GraphTest, WalksAreCounted) {
  Value& x = input("x");
  graph.create("Relu", {&x}, {"a"});
  graph.create("Relu", {&x}, {"b"});
  uint64_t before = context.visits();
  EXPECT_EQ(order().size(), 2u);
  EXPECT_EQ(context.visits() - before, 2u);
  before = context.visits();
  EXPECT_EQ(readers(x).size(), 2u);
  EXPECT_EQ(context.visits() - before, 2u);
}

TEST_F(GraphTest, ReplacementTakesOverTheOutputName) {
  Value& x = input("x");
  Node& old = graph.create("Relu", {&x}, {"y"});
  Node& reader = graph.create("Neg", {&old.result()}, {"z"});
  graph.addOutput(old.result());
  Node& fresh = graph.create("Tanh", {&x}, {"t"}, &reader);

  old.result().replaceAllUsesWith(fresh.result());
  EXPECT_EQ(fresh.result().name(), "y");
  EXPECT_TRUE(fresh.result().isGraphOutput());
  EXPECT_EQ(graph.outputs().front(), &fresh.result());
  EXPECT_EQ(reader.operand(0), &fresh.result());
  EXPECT_TRUE(old.isUnused());
  EXPECT_NE(old.result().name(), "y");
}

TEST_F(GraphTest, AnInputThatReplacesAnOutputIsCopied) {
  Value& x = input("x");
  Node& old = graph.create("Relu", {&x}, {"y"});
  graph.addOutput(old.result());
  old.result().replaceAllUsesWith(x);
  ASSERT_EQ(graph.outputs().size(), 1u);
  EXPECT_EQ(graph.outputs().front()->name(), "y");
  EXPECT_TRUE(graph.outputs().front()->producer()->is("Identity"));
  EXPECT_EQ(x.name(), "x");
}

/// An If in whose branch the output slots hold these values.
Node& addBranch(Graph& graph, llvm::ArrayRef<Value*> outputs) {
  Node& holder = graph.createFresh("If", {}, static_cast<unsigned>(outputs.size()));
  std::vector<std::unique_ptr<Graph>> branches;
  branches.push_back(std::make_unique<Graph>(graph.context(), graph.opsets(), &holder));
  for (Value* output : outputs)
    branches.back()->addOutput(*output);
  holder.setAttribute("then_branch", Attribute::ofGraphs(std::move(branches), /*list=*/false));
  return holder;
}

Graph& branchOf(Node& holder) { return *holder.attribute("then_branch")->graphs().front(); }

TEST_F(GraphTest, KnowsWhetherNodesHoldSubgraphs) {
  Value& x = input("x");
  Node& plain = graph.create("Relu", {&x}, {"plain"});
  EXPECT_FALSE(graph.hasSubgraphs());
  EXPECT_TRUE(plain.subgraphs().empty());
  Node& outer = addBranch(graph, {&x});
  Node& inner = addBranch(branchOf(outer), {&x});
  EXPECT_TRUE(graph.hasSubgraphs());
  EXPECT_EQ(outer.subgraphs(), (llvm::SmallVector<Graph*, 2>{&branchOf(outer)}));
  EXPECT_TRUE(branchOf(outer).hasSubgraphs());
  EXPECT_FALSE(branchOf(inner).hasSubgraphs());
  unsigned visited = 0;
  forEachGraph(graph, [&](Graph&) { ++visited; });
  EXPECT_EQ(visited, 3u);

  inner.removeAttribute("then_branch");
  EXPECT_FALSE(branchOf(outer).hasSubgraphs());
  graph.erase(outer);
  EXPECT_FALSE(graph.hasSubgraphs());
}

TEST_F(GraphTest, ErasingAHolderFreesWhatItsSubgraphsHandOut) {
  Value& x = input("x");
  Node& outer = graph.create("Relu", {&x}, {"outer"});
  Node& holder = addBranch(graph, {&outer.result(), &x});
  EXPECT_TRUE(outer.result().isGraphOutput());
  EXPECT_FALSE(outer.isUnused());
  graph.erase(holder);
  EXPECT_FALSE(outer.result().isGraphOutput());
  EXPECT_TRUE(x.isGraphInput() && !x.isGraphOutput());
  EXPECT_TRUE(outer.isUnused());
}

TEST_F(GraphTest, RemovingAnAttributeFreesWhatItsSubgraphHandsOut) {
  Value& x = input("x");
  Node& outer = graph.create("Relu", {&x}, {"outer"});
  Node& holder = addBranch(graph, {&outer.result()});
  Node& inner = addBranch(branchOf(holder), {&outer.result(), &outer.result()});
  holder.removeAttribute("then_branch");
  (void)inner;
  EXPECT_TRUE(outer.isUnused());
}

TEST_F(GraphTest, DeadHoldersTakeTheProducersOfTheirOutputsWithThem) {
  Value& x = input("x");
  Node& outer = graph.create("Relu", {&x}, {"outer"});
  addBranch(graph, {&outer.result()});
  EXPECT_EQ(graph.eraseDeadNodes(), 2u);
  EXPECT_TRUE(graph.nodes().empty());
}

TEST_F(GraphTest, ReplacementReachesOutputSlotsOfSubgraphs) {
  Value& x = input("x");
  Node& old = graph.create("Relu", {&x}, {"y"});
  Node& fresh = graph.create("Tanh", {&x}, {"t"});
  Node& holder = addBranch(graph, {&old.result()});
  Node& nested = addBranch(branchOf(holder), {&old.result()});
  graph.addOutput(holder.result());

  old.result().replaceAllUsesWith(fresh.result());
  EXPECT_TRUE(old.isUnused());
  EXPECT_EQ(branchOf(holder).outputs()[0], &fresh.result());
  EXPECT_EQ(branchOf(nested).outputs()[0], &fresh.result());
  EXPECT_EQ(fresh.result().name(), "t"); // no slot of its own graph: no name to keep
  graph.erase(old);
  EXPECT_FALSE(verify(graph));
}

TEST_F(GraphTest, SubgraphsHandOutTheReplacementAndNotTheCopyForTheOutput) {
  Value& x = input("x");
  Node& old = graph.create("Relu", {&x}, {"y"});
  Node& holder = addBranch(graph, {&old.result(), &x});
  graph.addOutput(old.result());
  graph.addOutput(holder.result());

  old.result().replaceAllUsesWith(x);
  EXPECT_TRUE(old.isUnused());
  Graph& branch = branchOf(holder);
  // The branch hands x out already, so the slot that changed gets a copy within the branch.
  EXPECT_EQ(branch.outputs()[1], &x);
  ASSERT_EQ(branch.nodes().size(), 1u);
  EXPECT_EQ(branch.outputs()[0], &branch.nodes().front().result());
  EXPECT_EQ(branch.nodes().front().operand(0), &x);
  ASSERT_EQ(graph.outputs()[0]->name(), "y");
  EXPECT_TRUE(graph.outputs()[0]->producer()->is("Identity"));
  graph.erase(old);
  EXPECT_FALSE(verify(graph));
}

TEST_F(GraphTest, AReplacementThatASubgraphHandsOutStillTakesTheName) {
  Value& x = input("x");
  Node& old = graph.create("Relu", {&x}, {"y"});
  Node& fresh = graph.create("Tanh", {&x}, {"t"});
  Node& holder = addBranch(graph, {&fresh.result()});
  graph.addOutput(old.result());
  old.result().replaceAllUsesWith(fresh.result());
  EXPECT_EQ(graph.outputs()[0], &fresh.result());
  EXPECT_EQ(fresh.result().name(), "y");
  EXPECT_EQ(graph.nodes().size(), 3u);
  graph.erase(holder);
  EXPECT_TRUE(fresh.result().isGraphOutput());
}

TEST_F(GraphTest, DeadChainsAndInitializersGo) {
  Value& x = input("x");
  Value& weight = graph.addConstant("w", int64Tensor({1, 2}));
  Node& dead = graph.create("Add", {&x, &weight}, {"dead"});
  graph.create("Relu", {&dead.result()}, {"deader"});
  Node& live = graph.create("Relu", {&x}, {"live"});
  graph.addOutput(live.result());
  EXPECT_EQ(graph.eraseDeadNodes(), 2u);
  EXPECT_EQ(order(), (std::vector<std::string>{"live"}));
  EXPECT_TRUE(graph.initializers().empty());
  EXPECT_EQ(graph.eraseDeadNodes(), 0u);
}

TEST_F(GraphTest, DeadChainsGoAtTheCostOfWhatIsDead) {
  Value& x = input("x");
  Node& live = graph.create("Relu", {&x}, {"live"});
  Node& shared = graph.create("Relu", {&x}, {"shared"});
  graph.addOutput(graph.create("Add", {&live.result(), &shared.result()}, {"y"}).result());
  Node& dead = graph.create("Relu", {&shared.result()}, {"dead"});
  Node& deader = graph.create("Relu", {&dead.result()}, {"deader"});
  graph.create("Relu", {&x}, {"elsewhere"});
  std::vector<std::string> erased;
  const uint64_t before = context.visits();
  eraseDeadChains({&deader, &dead, &live},
                  [&](Node& node) { erased.push_back(node.result().name().str()); });
  EXPECT_EQ(erased, (std::vector<std::string>{"deader", "dead"}));
  EXPECT_EQ(context.visits(), before);
  EXPECT_EQ(order(), (std::vector<std::string>{"live", "shared", "y", "elsewhere"}));
}

TEST_F(GraphTest, ConstantsAreSeenWhereverTheyAre) {
  Value& overridable = input("w");
  graph.setInputDefault(overridable, int64Tensor({3}));
  EXPECT_EQ(overridable.constant(), nullptr);
  EXPECT_NE(overridable.initializer(), nullptr);

  Value& weight = graph.addInitializer("fixed", int64Tensor({4, 5}));
  ASSERT_NE(weight.constant(), nullptr);
  auto known = weight.knownIntegers();
  ASSERT_TRUE(known);
  EXPECT_EQ((*known)[1].value(), 5);

  Node& constant = graph.create("Constant", {}, {"c"});
  constant.setAttribute("value", Attribute::ofTensor(int64Scalar(7)));
  ASSERT_NE(constant.result().constant(), nullptr);
  EXPECT_EQ(scalarValue(*constant.result().constant()), 7.0);
}

TEST_F(GraphTest, EditsAreCounted) {
  Value& x = input("x");
  Node& node = graph.create("Relu", {&x}, {"y"});
  context.resetEdits();
  EXPECT_EQ(context.edits(), 0u);
  node.setAttribute("alpha", Attribute::ofFloat(1));
  EXPECT_EQ(context.edits(), 1u);
}

} // namespace
} // namespace kvopt
