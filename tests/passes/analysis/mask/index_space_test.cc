// Proofs over index variables: true only where every index and every size agrees.
#include "passes/analysis/mask/index_space.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

const Dim b = IndexSpace::variable(IndexVariable::Batch);
const Dim i = IndexSpace::variable(IndexVariable::Row);
const Dim j = IndexSpace::variable(IndexVariable::Key);

Dim sym(const char* name) { return Dim::symbol(name); }
Dim num(int64_t value) { return Dim::fixed(value); }

IndexSpace decoder() { return {sym("B"), num(4), sym("S"), sym("P") + sym("S")}; }

TEST(IndexSpaceTest, RangesEnterAtTheEndThatMatters) {
  IndexSpace space = decoder();
  EXPECT_TRUE(space.isNonNegative(i));
  EXPECT_TRUE(space.isNonNegative(sym("S") - i - num(1)));
  EXPECT_FALSE(space.isNonNegative(sym("S") - i - num(2)));
  EXPECT_TRUE(space.isNonNegative(sym("P") + sym("S") - j - num(1)));
  EXPECT_FALSE(space.isNonNegative(i + sym("P") - j));
  EXPECT_FALSE(space.isNonNegative(i - j));
  EXPECT_TRUE(space.isNonNegative(sym("P") + i - i));
  EXPECT_FALSE(space.isNonNegative(Dim::unknown()));
}

TEST(IndexSpaceTest, ExtentsAreAtLeastOneOnce) {
  // S is the extent of rows and keys: it is at least 1, not 2.
  IndexSpace square(sym("B"), num(1), sym("S"), sym("S"));
  EXPECT_TRUE(square.isNonNegative(sym("S") - num(1)));
  EXPECT_FALSE(square.isNonNegative(sym("S") - num(2)));
  EXPECT_FALSE(square.isNonNegative(sym("P") - num(1)));
}

TEST(IndexSpaceTest, OneRowIsRowZero) {
  IndexSpace step(sym("B"), num(1), num(1), sym("P") + num(1));
  EXPECT_TRUE(step.isNonNegative(i + sym("P") - j));
}

TEST(IndexSpaceTest, FlatIndicesDivide) {
  IndexSpace space = decoder();
  Dim keys = sym("P") + sym("S");
  auto division = space.divide(b * keys + j, keys);
  ASSERT_TRUE(division.has_value());
  EXPECT_EQ(division->quotient, b);
  EXPECT_EQ(division->remainder, j);
  // j may reach the other extent.
  EXPECT_FALSE(space.divide(b * sym("S") + j, sym("S")).has_value());
  EXPECT_FALSE(space.divide(b * sym("C") + j, sym("C")).has_value());
  space.learnNonNegative(sym("C") - keys);
  EXPECT_TRUE(space.divide(b * sym("C") + j, sym("C")).has_value());
}

TEST(IndexSpaceTest, LargestValues) {
  IndexSpace space = decoder();
  EXPECT_EQ(space.largest(b * sym("C") + j),
            (sym("B") - num(1)) * sym("C") + sym("P") + sym("S") - num(1));
  EXPECT_EQ(space.largest(num(7) - i), num(7));
  EXPECT_FALSE(space.largest((sym("P") - sym("S")) * i).has_value());
}

TEST(IndexSpaceTest, FactorsAreLinearOrNothing) {
  EXPECT_EQ(linearFactor(i * sym("C") + j, IndexVariable::Row), sym("C"));
  EXPECT_EQ(linearFactor(sym("C"), IndexVariable::Row), num(0));
  EXPECT_FALSE(linearFactor(i * i, IndexVariable::Row).has_value());
}

TEST(IndexSpaceTest, ModelsCannotNameVariables) {
  EXPECT_TRUE(IndexSpace::fromModel(i).isUnknown());
  EXPECT_EQ(IndexSpace::fromModel(sym("i")), sym("i"));
  EXPECT_EQ(IndexSpace::print(i + sym("P")), "P + i");
}

} // namespace
} // namespace kvopt
