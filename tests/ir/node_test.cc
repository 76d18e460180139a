// Attributes, defaults, constants and descriptions of nodes.
#include "ir/graph.h"
#include "ir/op.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

class NodeTest : public testing::Test {
protected:
  NodeTest() { registerAll(ops); }

  OpRegistry ops;
  GraphContext context{ops};
  OpsetImports opsets{{"", 17}};
  Graph graph{context, opsets};
};

TEST_F(NodeTest, DefaultsComeFromTheDefinition) {
  Value& x = graph.addInput("x", TensorType(ElementType::Float));
  Node& gemm = graph.create("Gemm", {&x, &x}, {"y"});
  ASSERT_NE(gemm.definition(), nullptr);
  EXPECT_EQ(gemm.attribute("alpha"), nullptr);
  EXPECT_EQ(gemm.floatAttr("alpha", 7), 1.0f);
  EXPECT_EQ(gemm.intAttr("transA", 7), 0);
  EXPECT_EQ(gemm.intAttr("unheard_of", 7), 7);
  gemm.setAttribute("transA", Attribute::ofInt(1));
  EXPECT_EQ(gemm.intAttr("transA", 7), 1);
  gemm.setAttribute("transA", Attribute::ofInt(2));
  EXPECT_EQ(gemm.attributes().size(), 1u);
  gemm.removeAttribute("transA");
  EXPECT_EQ(gemm.intAttr("transA", 7), 0);
}

TEST_F(NodeTest, AttributesOfAnotherKindAreNotRead) {
  Node& node = graph.create("test::Unknown", {}, {"y"});
  EXPECT_EQ(node.definition(), nullptr);
  node.setAttribute("a", Attribute::ofFloat(2));
  node.setAttribute("r", Attribute::reference("outer", AttributeKind::Int));
  EXPECT_EQ(node.intAttr("a", 7), 7);
  EXPECT_EQ(node.floatAttr("a", 7), 2.0f);
  EXPECT_EQ(node.intAttr("r", 7), 7);
  EXPECT_EQ(node.stringAttr("a", "none"), "none");
  EXPECT_EQ(node.intsAttr("a"), std::nullopt);
}

TEST_F(NodeTest, ConstantsFollowTheirAttribute) {
  Node& node = graph.create("Constant", {}, {"c"});
  EXPECT_EQ(node.result().constant(), nullptr);
  node.setAttribute("value_ints", Attribute::ofInts({4, 5}));
  ASSERT_NE(node.result().constant(), nullptr);
  EXPECT_EQ(node.result().constant()->elementCount(), 2);
  node.removeAttribute("unheard_of");
  EXPECT_NE(node.result().constant(), nullptr);
  node.setAttribute("value_ints", Attribute::reference("outer", AttributeKind::Ints));
  EXPECT_EQ(node.result().constant(), nullptr);
  node.removeAttribute("value_ints");
  node.setAttribute("value_floats", Attribute::ofFloats({1, 2, 3}));
  ASSERT_NE(node.result().constant(), nullptr);
  EXPECT_EQ(node.result().constant()->elementCount(), 3);
  node.removeAttribute("value_floats");
  EXPECT_EQ(node.result().constant(), nullptr);
}

TEST_F(NodeTest, EditsOfAttributesNameAndMetadataShow) {
  Node& node = graph.create("Relu", {nullptr}, {"y"});
  EXPECT_FALSE(node.isEdited());
  node.setMetadata({{"key", "value"}});
  EXPECT_TRUE(node.isEdited());
  node.setSource(nullptr);
  EXPECT_FALSE(node.isEdited());
  node.setName("relu");
  EXPECT_TRUE(node.isEdited());
}

TEST_F(NodeTest, DescribesItselfByNameOrResult) {
  Node& node = graph.create("com.microsoft::Gelu", {nullptr}, {"y"});
  EXPECT_EQ(node.describe(), "node of 'y' (com.microsoft::Gelu)");
  node.setName("act");
  EXPECT_EQ(node.describe(), "node 'act' (com.microsoft::Gelu)");
  EXPECT_EQ(graph.create("Relu", {}, {}).describe(), "node (Relu)");
}

} // namespace
} // namespace kvopt
