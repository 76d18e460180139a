// Spellings of operator names.
#include "ir/op_name.h"

#include "llvm/ADT/DenseMap.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

TEST(OpNameTest, TheOnnxDomainHasTwoSpellings) {
  EXPECT_EQ(OpName("ai.onnx", "Add"), OpName("Add"));
  EXPECT_EQ(OpName("ai.onnx::Add"), OpName("", "Add"));
  EXPECT_TRUE(OpName("ai.onnx::Add").isOnnx());
  EXPECT_EQ(OpName("ai.onnx", "Add").str(), "Add");
  EXPECT_NE(OpName("ai.onnx.ml", "Add"), OpName("Add"));
}

TEST(OpNameTest, TheLastSeparatorCounts) {
  OpName name("a::b::C");
  EXPECT_EQ(name.domain(), "a::b");
  EXPECT_EQ(name.type(), "C");
  EXPECT_EQ(name.str(), "a::b::C");
  EXPECT_EQ(OpName("a::").type(), "");
}

TEST(OpNameTest, OrdersByDomainThenType) {
  EXPECT_LT(OpName("Zeta"), OpName("a::Alpha"));
  EXPECT_LT(OpName("a::Alpha"), OpName("a::Beta"));
  EXPECT_FALSE(OpName("a::Beta") < OpName("a::Beta"));
}

TEST(OpNameTest, IsAKeyOfMaps) {
  llvm::DenseMap<OpName, int> map;
  map[OpName("Add")] = 1;
  map[OpName("x::Add")] = 2;
  map[OpName()] = 3;
  EXPECT_EQ(map.lookup("ai.onnx::Add"), 1);
  EXPECT_EQ(map.lookup("x::Add"), 2);
  EXPECT_EQ(map.lookup(OpName()), 3);
  EXPECT_EQ(map.count("y::Add"), 0u);
}

} // namespace
} // namespace kvopt
