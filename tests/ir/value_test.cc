// Known integers, constants and kinds of values.
#include "ir/graph.h"
#include "ir/op.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

class ValueTest : public testing::Test {
protected:
  OpRegistry ops;
  GraphContext context{ops};
  OpsetImports opsets{{"", 17}};
  Graph graph{context, opsets};
};

TEST_F(ValueTest, KindsExcludeEachOther) {
  Value& input = graph.addInput("x", TensorType(ElementType::Float));
  Value& constant = graph.addInitializer("c", int64Tensor({1, 2}));
  Value& result = graph.create("Add", {&input, &constant}, {"y"}).result();
  EXPECT_TRUE(input.isGraphInput() && !input.isInitializer() && !input.producer());
  EXPECT_TRUE(constant.isInitializer() && !constant.isGraphInput() && !constant.producer());
  EXPECT_TRUE(result.producer() && !result.isGraphInput() && !result.isInitializer());
  EXPECT_EQ(result.resultIndex(), 0u);
  EXPECT_EQ(&result.graph(), &graph);
}

TEST_F(ValueTest, IntegersAreKnownOfShortListsOnly) {
  auto known = graph.addInitializer("a", int64Tensor({3, -4})).knownIntegers();
  ASSERT_TRUE(known);
  ASSERT_EQ(known->size(), 2u);
  EXPECT_EQ((*known)[1].value(), -4);
  EXPECT_TRUE(graph.addInitializer("s", int64Scalar(5)).knownIntegers());
  std::vector<int64_t> many(65, 1);
  EXPECT_FALSE(graph.addInitializer("b", int64Tensor(many)).knownIntegers());
  EXPECT_FALSE(graph.addInitializer("f", floatScalar(ElementType::Float, 1)).knownIntegers());
}

TEST_F(ValueTest, AnInputsDefaultIsNotItsContents) {
  Value& input = graph.addInput("x", TensorType::fixed(ElementType::Int64, {1}));
  graph.setInputDefault(input, int64Tensor({7}));
  EXPECT_TRUE(input.initializer());
  EXPECT_EQ(input.constant(), nullptr);
  EXPECT_FALSE(input.knownIntegers());
}

TEST_F(ValueTest, InferredIntegersComeFirst) {
  Value& result = graph.create("Shape", {nullptr}, {"s"}).result();
  EXPECT_FALSE(result.knownIntegers());
  result.setKnownIntegers(llvm::SmallVector<Dim, 4>{Dim::symbol("B")});
  ASSERT_TRUE(result.knownIntegers());
  EXPECT_EQ(result.knownIntegers()->front().str(), "B");
  result.setKnownIntegers(std::nullopt);
  EXPECT_FALSE(result.knownIntegers());
}

TEST_F(ValueTest, OneUseCountsOutputSlots) {
  Value& x = graph.addInput("x", TensorType(ElementType::Float));
  EXPECT_TRUE(x.isUnused());
  graph.create("Neg", {&x}, {"y"});
  EXPECT_TRUE(x.hasOneUse());
  graph.addOutput(x);
  EXPECT_FALSE(x.hasOneUse());
  EXPECT_TRUE(x.isGraphOutput());
}

} // namespace
} // namespace kvopt
