// Kinds, names and copies of attributes.
#include "ir/graph.h"
#include "ir/op.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

TEST(AttributeTest, HoldsWhatItWasMadeOf) {
  EXPECT_EQ(Attribute::ofFloat(0.5f).floatValue(), 0.5f);
  EXPECT_EQ(Attribute::ofInt(INT64_MIN).intValue(), INT64_MIN);
  EXPECT_EQ(Attribute::ofString("a\0b").stringValue(), "a");
  EXPECT_EQ(Attribute::ofFloats({1, 2}).floats().size(), 2u);
  EXPECT_EQ(Attribute::ofInts({1, 2, 3}).ints().back(), 3);
  EXPECT_EQ(Attribute::ofStrings({"x", ""}).strings()[1], "");
  TensorRef tensor = int64Tensor({4});
  EXPECT_EQ(Attribute::ofTensor(tensor).tensorValue(), tensor);
  EXPECT_EQ(Attribute::ofTensors({tensor, tensor}).tensors().size(), 2u);
  EXPECT_EQ(Attribute().kind(), AttributeKind::Undefined);
  EXPECT_FALSE(Attribute::ofInt(1).isReference());
}

TEST(AttributeTest, ReferencesKnowTheirKind) {
  Attribute reference = Attribute::reference("alpha", AttributeKind::Float);
  EXPECT_TRUE(reference.isReference());
  EXPECT_EQ(reference.referencedName(), "alpha");
  EXPECT_EQ(reference.kind(), AttributeKind::Float);
  Attribute copy = reference.clone();
  EXPECT_EQ(copy.referencedName(), "alpha");
  EXPECT_EQ(copy.kind(), AttributeKind::Float);
}

TEST(AttributeTest, ClonesAreIndependent) {
  Attribute ints = Attribute::ofInts({1, 2});
  Attribute copy = ints.clone();
  ints = Attribute::ofInt(9);
  ASSERT_EQ(copy.kind(), AttributeKind::Ints);
  EXPECT_EQ(copy.ints().vec(), (std::vector<int64_t>{1, 2}));
}

TEST(AttributeTest, OnlyGraphKindsHaveGraphs) {
  OpRegistry ops;
  GraphContext context(ops);
  OpsetImports opsets;
  std::vector<std::unique_ptr<Graph>> graphs;
  graphs.push_back(std::make_unique<Graph>(context, opsets));
  const Graph* body = graphs.front().get();
  Attribute one = Attribute::ofGraphs(std::move(graphs), /*list=*/false);
  EXPECT_EQ(one.kind(), AttributeKind::Graph);
  ASSERT_EQ(one.graphs().size(), 1u);
  EXPECT_EQ(one.graphs().front().get(), body);
  EXPECT_EQ(Attribute::ofGraphs({}, /*list=*/true).kind(), AttributeKind::Graphs);
  EXPECT_TRUE(Attribute::ofInts({1}).graphs().empty());
}

TEST(AttributeTest, KindNamesAreReadBack) {
  for (int kind = 1; kind <= 14; ++kind) {
    auto known = static_cast<AttributeKind>(kind);
    EXPECT_EQ(attributeKindFromName(attributeKindName(known)), known);
  }
  EXPECT_EQ(attributeKindName(static_cast<AttributeKind>(-1)), "undefined");
  EXPECT_EQ(attributeKindName(static_cast<AttributeKind>(99)), "undefined");
  EXPECT_EQ(attributeKindFromName("undefined"), AttributeKind::Undefined);
  EXPECT_EQ(attributeKindFromName("Int"), AttributeKind::Undefined);
}

} // namespace
} // namespace kvopt
