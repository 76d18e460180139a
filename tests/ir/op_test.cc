// Operator names and the registry of definitions.
#include "ir/op.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

TEST(OpTest, NamesParseAndCompare) {
  EXPECT_EQ(OpName("MatMul").str(), "MatMul");
  EXPECT_TRUE(OpName("MatMul").isOnnx());
  EXPECT_EQ(OpName("com.microsoft::Gelu").domain(), "com.microsoft");
  EXPECT_EQ(OpName("com.microsoft::Gelu").type(), "Gelu");
  EXPECT_EQ(OpName("ai.onnx", "Gelu"), OpName("Gelu"));
  EXPECT_NE(OpName("com.microsoft::Gelu"), OpName("Gelu"));
}

TEST(OpTest, TheNewestDefinitionThatIsNotTooNew) {
  OpRegistry registry;
  define(registry, "Split", 1).in("input").attr("axis", int64_t{0});
  define(registry, "Split", 13).in("input").in("split?").out("outputs*");
  EXPECT_EQ(registry.find("Split", 0), nullptr);
  EXPECT_EQ(registry.find("Split", 12)->since, 1);
  EXPECT_EQ(registry.find("Split", 13)->since, 13);
  EXPECT_EQ(registry.find("Split", 99)->since, 13);
  EXPECT_EQ(registry.find("Splot", 99), nullptr);
}

TEST(OpTest, CountsOfFormals) {
  OpRegistry registry;
  define(registry, "Op", 1).in("a").in("b?").in("c").in("d?").out("y").out("z*");
  const OpDef& definition = *registry.find("Op", 1);
  EXPECT_EQ(definition.minOperands(), 3u);
  EXPECT_EQ(definition.maxOperands(), 4u);
  EXPECT_EQ(definition.maxResults(), std::nullopt);
  EXPECT_EQ(definition.operands[1].name, "b");
}

} // namespace
} // namespace kvopt
