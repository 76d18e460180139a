// Which extents operators relate, and what they are solved for.
#include "passes/analysis/interface/extent_equations.h"

#include "ir/shapes/shape_inference.h"
#include "tests/ir/text/text_fixture.h"

#include <ctime>
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

/// A sum of `count` operands, whose extents are the symbols in turn.
std::unique_ptr<Model> wideSum(size_t count, llvm::ArrayRef<const char*> symbols) {
  std::string inputs;
  std::string operands;
  for (size_t i = 0; i < count; ++i) {
    inputs += formatted("{}float[{}, 4] x{}", i ? ", " : "", symbols[i % symbols.size()], i);
    operands += formatted("{}x{}", i ? ", " : "", i);
  }
  auto model = readOrFail(formatted("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                                    "g ({}) => (float[n, 4] y) {{ y = Sum ({}) }}",
                                    inputs, operands));
  llvm::cantFail(inferShapes(model->graph()));
  return model;
}

TEST(ExtentEquations, AWideSumHasOneForEachPairOfDifferentExtents) {
  EXPECT_EQ(extentEquations(wideSum(100, {"n"})->graph()).size(), 0u);
  EXPECT_EQ(extentEquations(wideSum(100, {"a", "b", "c"})->graph()).size(), 3u);
}

/// If each pair of operands were compared, this would take minutes.
TEST(ExtentEquations, AWideSumTakesLinearTime) {
  const auto model = wideSum(40'000, {"a", "b"});
  const std::clock_t start = std::clock();
  EXPECT_EQ(extentEquations(model->graph()).size(), 1u);
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
}

} // namespace
} // namespace kvopt
