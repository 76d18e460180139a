// Which extents operators relate, and what they are solved for.
#include "passes/analysis/interface/extent_equations.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

std::optional<SolvedExtent> solved(const char* left, const char* right) {
  ExtentEquation equation{*Dim::parse(left), *Dim::parse(right), true, nullptr};
  // The alphabet says which symbol is kept.
  return solvedExtent(
      equation, [](llvm::StringRef kept, llvm::StringRef replaced) { return kept < replaced; });
}

void expectSolved(const char* left, const char* right, const char* symbol, const char* value) {
  auto found = solved(left, right);
  ASSERT_TRUE(found) << left << " = " << right;
  EXPECT_EQ(found->symbol, symbol);
  EXPECT_EQ(found->value.str(), value);
}

TEST(SolvedExtent, IsASumRatherThanADifference) {
  expectSolved("total", "past + tokens", "total", "past + tokens");
  expectSolved("past + tokens", "total", "total", "past + tokens");
}

TEST(SolvedExtent, OfTwoSymbolsTheOnePreferredStays) {
  expectSolved("a", "b", "b", "a");
  expectSolved("b", "a", "b", "a");
}

TEST(SolvedExtent, LeavesOutWhatBothSidesHave) {
  expectSolved("p + tokens", "q + tokens", "q", "p");
}

TEST(SolvedExtent, ProductsAreSolvedForWhatIsLinear) {
  expectSolved("rows", "4*batch", "rows", "4*batch");
  EXPECT_FALSE(solved("2*a", "3*b"));
}

TEST(SolvedExtent, WhatCouldBeNegativeIsNoExtent) { EXPECT_FALSE(solved("a + b", "3")); }

} // namespace
} // namespace kvopt
