// Removing nodes: what replaces their results, and which inputs and outputs appear.
#include "driver/reduce/node_edits.h"

#include "tests/driver/reduce/reduced_text.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* chain = R"(
<ir_version: 8, opset_import: ["" : 17]>
chain (float[N, 4] x, float[N, 4] other) => (float[N, 4] y, float[N, 4] side)
{
  a = Tanh (x)
  b = Add (a, other)
  side = Neg (b)
  c = Exp (b)
  y = Sqrt (c)
})";

TEST(RemovedNodes, BecomeInputsAndOutputs) {
  TextModel text(chain);
  ASSERT_TRUE(removeNodes(text.graph(), {"b", "side"}, Replacement::Input, true));
  EXPECT_TRUE(text.isValid());
  // What the nodes computed comes in, what they read goes out, and what only they read is gone.
  EXPECT_EQ(text.inputs(), "x b");
  EXPECT_EQ(text.outputs(), "y a");
  EXPECT_THAT(nodeNames(text.graph()), ElementsAre("a", "c", "y"));
  EXPECT_EQ(text.graph().findValue("b")->type().str(), "float[N, 4]");
}

TEST(RemovedNodes, WithoutKeepingOperands) {
  TextModel text(chain);
  ASSERT_TRUE(removeNodes(text.graph(), {"c"}, Replacement::Input, false));
  EXPECT_TRUE(text.isValid());
  EXPECT_EQ(text.outputs(), "y side");
  EXPECT_EQ(text.inputs(), "x other c");
}

TEST(RemovedNodes, AreReplacedByAnOperandOfTheSameType) {
  TextModel text(chain);
  ASSERT_TRUE(removeNodes(text.graph(), {"b", "c"}, Replacement::Operand, false));
  EXPECT_TRUE(text.isValid());
  EXPECT_THAT(text.nodes(), HasSubstr("side = Neg (a)"));
  EXPECT_THAT(text.nodes(), HasSubstr("y = Sqrt (a)"));
}

TEST(RemovedNodes, AreReplacedByZerosOfAFixedType) {
  TextModel text(R"(
<ir_version: 8, opset_import: ["" : 17]>
fixed (float[2, 3] x) => (float[2, 5] y)
<float[3, 5] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}>
{
  a = MatMul (x, w)
  y = Neg (a)
})");
  ASSERT_TRUE(removeNodes(text.graph(), {"a"}, Replacement::Operand, false));
  EXPECT_TRUE(text.isValid());
  const Value* zeros = text.graph().findValue("y")->producer()->operand(0);
  ASSERT_NE(zeros->constant(), nullptr);
  EXPECT_EQ(zeros->constant()->shape(), llvm::ArrayRef<int64_t>({2, 5}));
  EXPECT_THAT(*floatValues(*zeros->constant()), testing::Each(0.0));
}

TEST(RemovedNodes, NeedAReplacement) {
  TextModel text(R"(
<ir_version: 8, opset_import: ["" : 17]>
symbols (float[N, 3] x) => (float[3, N] y)
{
  a = Transpose (x)
  y = Neg (a)
})");
  EXPECT_FALSE(removeNodes(text.graph(), {"a"}, Replacement::Operand, false));
}

TEST(RemovedNodes, AreReplacedForReadersInSubgraphs) {
  TextModel text(R"(
<ir_version: 8, opset_import: ["" : 17]>
branches (bool flag, float[N] x) => (float[N] y)
{
  a = Tanh (x)
  y = If (flag) <then_branch = then () => (float[N] t) { t = Neg (a) },
                 else_branch = other () => (float[N] e) { e = Identity (a) }>
})");
  ASSERT_TRUE(removeNodes(text.graph(), {"a"}, Replacement::Input, true));
  EXPECT_TRUE(text.isValid());
  EXPECT_EQ(text.inputs(), "flag a");
}

TEST(Branches, TakeThePlaceOfTheirNode) {
  TextModel text(R"(
<ir_version: 8, opset_import: ["" : 17]>
branches (bool flag, float[N] x) => (float[N] y)
{
  a = Tanh (x)
  y = If (flag) <then_branch = then () => (float[N] t) { s = Neg (a) t = Exp (s) },
                 else_branch = other () => (float[N] e) { e = Identity (a) }>
})");
  ASSERT_FALSE(takeBranch(text.graph(), "a", 0));
  ASSERT_FALSE(takeBranch(text.graph(), "y", 2));
  ASSERT_TRUE(takeBranch(text.graph(), "y", 0));
  EXPECT_TRUE(text.isValid());
  EXPECT_THAT(text.nodes(), HasSubstr("s_1 = Neg (a)"));
  EXPECT_THAT(text.nodes(), HasSubstr("y = Exp (s_1)"));
  EXPECT_THAT(text.nodes(), testing::Not(HasSubstr("If")));
}

TEST(NestedNodes, AreReplacedByOperands) {
  TextModel text(R"(
<ir_version: 8, opset_import: ["" : 17]>
branches (bool flag, float[N] x) => (float[N] y)
{
  y = If (flag) <then_branch = then () => (float[N] t) { s = Neg (x) t = Exp (s) },
                 else_branch = other () => (float[N] e) { e = Identity (x) }>
})");
  const std::vector<std::string> keys = nestedNodeKeys(*text.model);
  ASSERT_THAT(keys, ElementsAre("0.0", "0.1", "1.0"));
  ASSERT_TRUE(removeNestedNodes(*text.model, keys[0]));
  EXPECT_TRUE(text.isValid());
  EXPECT_THAT(printText(*text.model), HasSubstr("t = Exp (x)"));
  EXPECT_FALSE(removeNestedNodes(*text.model, std::string("7.7")));
}

} // namespace
} // namespace kvopt
