// Which extents of a reshape symbols go to.
#include "passes/analysis/movement/aligned_reshape.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <gtest/gtest.h>

#include <string>

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

Shape shapeOf(const std::string& text) {
  Shape shape;
  llvm::SmallVector<llvm::StringRef, 6> parts;
  llvm::StringRef(text).split(parts, ", ");
  for (llvm::StringRef part : parts)
    shape.push_back(*Dim::parse(part));
  return shape;
}

/// The shape as text, where b, s and p were such numbers.
std::string aligned(const std::string& from, const std::string& to, int64_t batch, int64_t tokens,
                    std::optional<unsigned> one = std::nullopt, int64_t past = 5) {
  const auto before = [&](const Dim& extent) {
    return extent.substitute([&](llvm::StringRef symbol) -> std::optional<Dim> {
      if (symbol == "b")
        return Dim::fixed(batch);
      if (symbol == "s")
        return Dim::fixed(tokens);
      return symbol == "p" ? std::optional(Dim::fixed(past)) : std::nullopt;
    });
  };
  const auto shape = alignedReshape(shapeOf(from), shapeOf(to), before,
                                    [&](unsigned axis) { return axis == one; });
  if (!shape)
    return "none";
  std::string text;
  for (const Dim& extent : *shape)
    text += (text.empty() ? "" : ", ") + extent.str();
  return text;
}

TEST(AlignedReshape, SymbolsKeepTheirElements) {
  EXPECT_EQ(aligned("b, s, 32", "2, 3, 4, 8", 2, 3), "b, s, 4, 8");
  EXPECT_EQ(aligned("b, s, 4, 8", "2, 3, 32", 2, 3), "b, s, 32");
  EXPECT_EQ(aligned("b, s, 32", "6, 32", 2, 3), "b*s, 32");
  EXPECT_EQ(aligned("b*s, 32", "2, 3, 32", 2, 3), "b, s, 32");
  EXPECT_EQ(aligned("b, 2, 4, p + s, 8", "2, 8, 8, 8", 2, 3), "b, 8, p + s, 8");
  EXPECT_EQ(aligned("b, 4, s, 8", "8, 3, 8", 2, 3), "4*b, s, 8");
}

TEST(AlignedReshape, ExtentsOfOneAreTakenInOrder) {
  EXPECT_EQ(aligned("b, s, 32", "1, 1, 4, 8", 1, 1), "b, s, 4, 8");
  EXPECT_EQ(aligned("b, s, 32", "1, 32", 1, 1), "b*s, 32");
  EXPECT_EQ(aligned("b, 4, s, 8", "4, 1, 8", 1, 1), "4*b, s, 8");
  EXPECT_EQ(aligned("1, s, 8", "1, 1, 8", 1, 1), "1, s, 8");
  EXPECT_EQ(aligned("b, s", "1, 1, 1", 1, 1), "b, s, 1");
  EXPECT_EQ(aligned("32, s", "32", 1, 1), "32*s");
}

TEST(AlignedReshape, AxesThatAreRepeatedStayOne) {
  EXPECT_EQ(aligned("b, s, 16", "1, 1, 1, 16", 1, 1), "b, s, 1, 16");
  EXPECT_EQ(aligned("b, s, 16", "1, 1, 1, 16", 1, 1, 1), "b, 1, s, 16");
  EXPECT_EQ(aligned("b, s, 16", "1, 16", 1, 1, 0), "1, 16*b*s");
  EXPECT_EQ(aligned("b, 1, s, 16", "1, 1, 1, 8, 2", 1, 1, 0), "b, 1, s, 8, 2");
}

TEST(AlignedReshape, SymbolsOfTheModelStay) {
  EXPECT_EQ(aligned("b, 2, total, 8", "1, 2, total, 8", 1, 1), "b, 2, total, 8");
  EXPECT_EQ(aligned("b, s, total", "1, total", 1, 1), "b*s, total");
}

TEST(AlignedReshape, WhatDoesNotLineUpIsNone) {
  EXPECT_EQ(aligned("b, s, 32", "3, 2, 32", 2, 3), "none");
  EXPECT_EQ(aligned("b, s, 32", "2, 4, 24", 2, 3), "none");
  EXPECT_EQ(aligned("b, s", "2, 3, 2", 2, 3), "none");
}

} // namespace
} // namespace kvopt
