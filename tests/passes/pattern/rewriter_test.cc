// The rewriter: names, outputs, order, cycles, discard, journal.
#include "passes/pattern/rewriter.h"
#include "tests/passes/graph_fixture.h"

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

using ::testing::HasSubstr;

class RewriterTest : public GraphTest {
protected:
  Journal journal;
};

TEST_F(RewriterTest, FreshNamesStayUnique) {
  Value& a = input("a");
  input("fused");
  Value& b = node("Relu", {&a}, "b");
  graph().addOutput(b);
  Rewriter rewriter(graph(), "rule", journal);
  Node& first = rewriter.create("Neg", {&a}, {}, 1, "fused");
  Node& second = rewriter.create("Neg", {&a}, {}, 1, "fused");
  Node& third = rewriter.create("Split", {&a}, {}, 2, "b");
  rewriter.constant("a", floatScalar(ElementType::Float, 1.0));
  EXPECT_NE(first.result().name(), second.result().name());
  EXPECT_NE(third.result(0).name(), third.result(1).name());
  EXPECT_EQ(first.name(), first.result().name());
  expectWellFormed();
}

TEST_F(RewriterTest, CreatesAfterTheLastOperand) {
  Value& a = input("a");
  Value& b = node("Relu", {&a}, "b");
  Value& d = node("Neg", {&b}, "d");
  node("Tanh", {&d}, "e");
  Rewriter rewriter(graph(), "rule", journal);
  Node& late = rewriter.create("Add", {&d, &b}, {}, 1, "late");
  Node& early = rewriter.create("Relu", {&a}, {}, 1, "early");
  EXPECT_EQ(&*std::prev(late.getIterator()), d.producer());
  EXPECT_EQ(&graph().nodes().front(), &early);
  expectWellFormed();
}

TEST_F(RewriterTest, AnOutputKeepsItsName) {
  Value& a = input("a");
  Value& out = node("Relu", {&a}, "out");
  Value& reader = node("Neg", {&out}, "reader");
  graph().addOutput(out);
  graph().addOutput(reader);
  Rewriter rewriter(graph(), "rule", journal);
  Node& fused = rewriter.create("Tanh", {&a}, {}, 1, "fused");
  EXPECT_FALSE(rewriter.replace(out, fused.result()));
  EXPECT_EQ(graph().outputs()[0], &fused.result());
  EXPECT_EQ(fused.result().name(), "out");
  EXPECT_EQ(reader.producer()->operand(0), &fused.result());
  EXPECT_TRUE(out.isUnused());
  expectWellFormed();
}

TEST_F(RewriterTest, AnOutputKeepsItsDeclaredType) {
  Value& a = input("a", floats({"B", "?"}));
  Value& out = node("Relu", {&a}, "out");
  out.setType(floats({"B", "S"}));
  graph().addOutput(out);
  Rewriter rewriter(graph(), "rule", journal);
  Node& fused = rewriter.create("ai.example::Unheard", {&a}, {}, 1, "fused");
  EXPECT_FALSE(rewriter.replace(out, fused.result()));
  EXPECT_EQ(graph().outputs()[0]->type(), floats({"B", "S"}));
}

TEST_F(RewriterTest, AnInteriorTypeKeepsWhatWasKnown) {
  Value& a = input("a");
  Value& inner = node("Relu", {&a}, "inner");
  inner.setType(floats({"B", "S"}));
  graph().addOutput(node("Neg", {&inner}, "out"));
  Value& other = node("ai.example::Unheard", {&a}, "other");
  other.setType(floats({"?", "7"}));
  Rewriter rewriter(graph(), "rule", journal);
  EXPECT_FALSE(rewriter.replace(inner, other));
  EXPECT_EQ(other.type(), floats({"B", "7"}));
}

TEST_F(RewriterTest, AnIdentityNamesAnOutputThatIsAnInput) {
  Value& a = input("a");
  Value& out = node("Relu", {&a}, "out");
  graph().addOutput(out);
  Rewriter rewriter(graph(), "rule", journal);
  EXPECT_FALSE(rewriter.replace(out, a));
  ASSERT_EQ(graph().outputs().size(), 1u);
  Value& now = *graph().outputs()[0];
  EXPECT_EQ(now.name(), "out");
  ASSERT_TRUE(now.producer());
  EXPECT_EQ(now.producer()->op(), OpName("Identity"));
  EXPECT_EQ(now.producer()->operand(0), &a);
  EXPECT_EQ(now.type(), a.type());
  expectWellFormed();
}

TEST_F(RewriterTest, AnIdentityNamesASecondOutput) {
  Value& a = input("a");
  Value& first = node("Relu", {&a}, "first");
  Value& second = node("Relu", {&a}, "second");
  graph().addOutput(first);
  graph().addOutput(second);
  Rewriter rewriter(graph(), "rule", journal);
  EXPECT_FALSE(rewriter.replace(second, first));
  EXPECT_EQ(graph().outputs()[0], &first);
  EXPECT_EQ(first.name(), "first");
  EXPECT_EQ(graph().outputs()[1]->name(), "second");
  EXPECT_EQ(graph().outputs()[1]->producer()->op(), OpName("Identity"));
  expectWellFormed();
}

TEST_F(RewriterTest, ReadersThatStandTooEarlyAreMoved) {
  Value& a = input("a");
  Value& b = node("Relu", {&a}, "b");
  Value& reader = node("Neg", {&b}, "reader");
  Value& further = node("Tanh", {&reader}, "further");
  Value& bystander = node("Sigmoid", {&a}, "bystander");
  Value& late = node("Relu", {&bystander}, "late");
  graph().addOutput(further);
  graph().addOutput(late);
  Rewriter rewriter(graph(), "rule", journal);
  EXPECT_FALSE(rewriter.replace(b, late));
  expectWellFormed();
  EXPECT_EQ(text(), "b = Relu(a)\n"
                    "bystander = Sigmoid(a)\n"
                    "late = Relu(bystander)\n"
                    "reader = Neg(late)\n"
                    "further = Tanh(reader)\n"
                    "-> further late\n");
}

TEST_F(RewriterTest, AReaderInASubgraphMovesItsHolder) {
  Value& a = input("a");
  Value& b = node("Relu", {&a}, "b");
  Value& branch = holder(b, "branch");
  branch.producer()->setOperands({&a});
  Value& late = node("Sigmoid", {&a}, "late");
  graph().addOutput(branch);
  Rewriter rewriter(graph(), "rule", journal);
  EXPECT_FALSE(rewriter.replace(b, late));
  EXPECT_TRUE(late.producer()->comesBefore(*branch.producer()));
  ASSERT_EQ(capturedValues(*branch.producer()).size(), 1u);
  EXPECT_EQ(capturedValues(*branch.producer())[0], &late);
  EXPECT_FALSE(b.hasUses());
}

TEST_F(RewriterTest, ACycleIsRefusedWithThePath) {
  Value& a = input("a");
  Value& present = node("Relu", {&a}, "present");
  Value& shape = node("Shape", {&present}, "shape");
  Value& mask = node("Neg", {&shape}, "mask");
  Value& out = node("Add", {&present, &mask}, "out");
  graph().addOutput(present);
  graph().addOutput(out);
  std::string before = text();
  {
    Rewriter rewriter(graph(), "rule", journal);
    Value& constant = rewriter.constant("neutral", floatScalar(ElementType::Float, 0.0));
    Node& helper = rewriter.create("Neg", {&mask}, {}, 1, "helper");
    Node& fused = rewriter.create("Split", {&a, &helper.result(), &constant}, {}, 2, "fused");
    auto failure = rewriter.replace({{&out, &fused.result(0)}, {&present, &fused.result(1)}});
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code, ReasonCode::WouldCreateCycle);
    EXPECT_EQ(failure->node, "present");
    EXPECT_THAT(failure->found, HasSubstr("helper <- mask <- shape <- present"));
    EXPECT_EQ(graph().outputs()[1], &out);
    rewriter.discard();
    EXPECT_TRUE(rewriter.touched().empty());
  }
  EXPECT_EQ(text(), before) << "textually unchanged, constants included";
  EXPECT_TRUE(journal.entries.empty()) << "what did not happen is not journaled";
  expectWellFormed();
}

TEST_F(RewriterTest, ACycleThroughASubgraphCapture) {
  Value& a = input("a");
  Value& present = node("Relu", {&a}, "present");
  Value& branch = holder(present, "branch");
  branch.producer()->setOperands({&a}); // only the body reads the present
  graph().addOutput(branch);
  Rewriter rewriter(graph(), "rule", journal);
  Node& fused = rewriter.create("Neg", {&branch}, {}, 1, "fused");
  auto failure = rewriter.replace(present, fused.result());
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ReasonCode::WouldCreateCycle);
  EXPECT_THAT(failure->found, HasSubstr("branch <- present"));
}

TEST_F(RewriterTest, DiscardKeepsWhatIsRead) {
  Value& a = input("a");
  Value& b = node("Relu", {&a}, "b");
  graph().addOutput(node("Neg", {&b}, "out"));
  Rewriter rewriter(graph(), "rule", journal);
  Value& constant = rewriter.constant("constant", floatScalar(ElementType::Float, 1.0));
  Node& kept = rewriter.create("Add", {&a, &constant}, {}, 1, "kept");
  rewriter.create("Tanh", {&kept.result()}, {}, 1, "dropped");
  EXPECT_FALSE(rewriter.replace(b, kept.result()));
  rewriter.discard();
  EXPECT_EQ(graph().findValue("dropped"), nullptr);
  EXPECT_EQ(graph().findValue("kept"), &kept.result());
  EXPECT_EQ(graph().findValue("constant"), &constant);
  expectWellFormed();
}

TEST_F(RewriterTest, JournalAndMetadata) {
  Value& a = input("a");
  Value& b = node("Relu", {&a}, "b");
  Value& out = node("Neg", {&b}, "out");
  b.producer()->setName("");
  graph().addOutput(out);
  {
    Rewriter rewriter(graph(), "fuse", journal, "/out");
    Node& fused = rewriter.create("ai.example::Fused", {&a}, one(intAttribute("k", 3)), 1, "fused");
    rewriter.recordSources(fused, {out.producer(), b.producer()});
    EXPECT_EQ(fused.intAttr("k", 0), 3);
    EXPECT_EQ(fused.metadata(), (Metadata{{"kvopt.rule", "fuse"}, {"kvopt.from", "/out b"}}));
    EXPECT_FALSE(rewriter.replace(out, fused.result()));
  }
  ASSERT_EQ(journal.entries.size(), 1u);
  EXPECT_EQ(journal.entries[0].rule, "fuse");
  EXPECT_EQ(journal.entries[0].root, "/out");
  EXPECT_EQ(journal.entries[0].created, std::vector<std::string>{"ai.example::Fused fused"});
  EXPECT_EQ(journal.entries[0].replaced, std::vector<std::string>{"out"});
  EXPECT_EQ(journal.applications("fuse"), 1u);
  EXPECT_EQ(journal.applications("other"), 0u);
}

TEST_F(RewriterTest, DependencyPaths) {
  Value& a = input("a");
  Value& b = node("Relu", {&a}, "b");
  Value& d = node("Neg", {&b}, "d");
  Value& apart = input("apart");
  EXPECT_EQ(dependencyPath(d, {&a}), (std::vector<const Value*>{&d, &b, &a}));
  EXPECT_EQ(dependencyPath(d, {&d}), std::vector<const Value*>{&d});
  EXPECT_TRUE(dependencyPath(d, {&apart}).empty());
  EXPECT_TRUE(dependencyPath(a, {&d}).empty());
}

} // namespace
} // namespace kvopt
