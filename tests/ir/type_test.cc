// Ranks, axes and extents of types.
#include "ir/type.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

TEST(TypeTest, AxesCountFromBothEnds) {
  EXPECT_EQ(normalizedAxis(0, 3), 0u);
  EXPECT_EQ(normalizedAxis(-1, 3), 2u);
  EXPECT_EQ(normalizedAxis(-3, 3), 0u);
  for (int64_t axis : {int64_t{3}, int64_t{-4}, INT64_MAX, INT64_MIN})
    EXPECT_EQ(normalizedAxis(axis, 3), std::nullopt) << axis;
  EXPECT_EQ(normalizedAxis(0, 0), std::nullopt);
}

TEST(TypeTest, WhatIsNotKnownIsUnknown) {
  TensorType none;
  EXPECT_FALSE(none.hasRank());
  EXPECT_TRUE(none.dim(0).isUnknown());
  EXPECT_TRUE(none.elementCount().isUnknown());
  EXPECT_EQ(none.fixedShape(), std::nullopt);
  EXPECT_EQ(none.str(), "undefined");
  EXPECT_EQ(TensorType(ElementType::Float16).str(), "float16");
}

TEST(TypeTest, ExtentsMultiply) {
  TensorType type(ElementType::Float, {Dim::symbol("B"), Dim::fixed(4)});
  EXPECT_EQ(type.elementCount().str(), "4*B");
  EXPECT_EQ(type.dim(-1).value(), 4);
  EXPECT_TRUE(type.dim(2).isUnknown());
  EXPECT_TRUE(type.dim(-3).isUnknown());
  EXPECT_EQ(type.fixedShape(), std::nullopt);
  EXPECT_EQ(type.str(), "float[B, 4]");
  type.setShape({Dim::symbol("B"), Dim::unknown()});
  EXPECT_TRUE(type.elementCount().isUnknown());
  TensorType scalar = TensorType::fixed(ElementType::Int64, {});
  EXPECT_EQ(scalar.elementCount().value(), 1);
  EXPECT_EQ(scalar.str(), "int64[]");
}

TEST(TypeTest, FixedShapesComeBack) {
  TensorType type = TensorType::fixed(ElementType::Bool, {2, 0, 3});
  auto shape = type.fixedShape();
  ASSERT_TRUE(shape);
  EXPECT_EQ((std::vector<int64_t>(shape->begin(), shape->end())), (std::vector<int64_t>{2, 0, 3}));
  EXPECT_EQ(type.elementCount().value(), 0);
  EXPECT_EQ(type, TensorType::fixed(ElementType::Bool, {2, 0, 3}));
  EXPECT_FALSE(type == TensorType::fixed(ElementType::Int8, {2, 0, 3}));
  EXPECT_FALSE(type == TensorType(ElementType::Bool));
}

} // namespace
} // namespace kvopt
