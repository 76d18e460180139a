// What is proved of integers, and that what is false is not.
#include "meaning/expression/formulas.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace kvopt::meaning {
namespace {

class ProverTest : public testing::Test {
protected:
  bool isProved(Expr boolean) { return f.booleanOf(boolean) == true; }
  bool isRefuted(Expr boolean) { return f.booleanOf(boolean) == false; }
  Expr n(int64_t value) { return f.integer(value); }

  Formulas f;
  const Expr batch = f.symbol("B"), length = f.symbol("S"), past = f.symbol("P", {0, mostExtent});
  const Expr total = f.add(past, length);
  const Expr i = f.index("i", length), j = f.index("j", total), d = f.index("d", n(16));
};

TEST_F(ProverTest, SizesAndIndices) {
  EXPECT_TRUE(isProved(f.below(f.add(past, i), total)));
  EXPECT_TRUE(isProved(f.atMost(past, f.multiply(past, length))));
  EXPECT_TRUE(isProved(f.below(f.add(f.scaled(j, 16), d), f.scaled(total, 16))));
  EXPECT_TRUE(isRefuted(f.below(total, j)));
  EXPECT_FALSE(isProved(f.below(j, past)));
  EXPECT_FALSE(isProved(f.atMost(length, past)));
  // No extent is as large as this.
  EXPECT_TRUE(isProved(f.atMost(f.add(past, length), n(INT64_MAX))));
  EXPECT_FALSE(isProved(f.atMost(past, n(mostExtent - 1))));
}

TEST_F(ProverTest, QuotientsRemaindersAndExtremes) {
  EXPECT_TRUE(isProved(f.atMost(f.quotient(j, n(4)), j)));
  EXPECT_TRUE(isProved(f.below(f.remainder(j, f.add(length, n(2))), f.add(length, n(2)))));
  EXPECT_TRUE(isProved(f.atMost(f.scaled(f.quotient(j, n(4)), 4), j)));
  EXPECT_TRUE(isProved(f.below(f.subtract(j, n(4)), f.scaled(f.quotient(j, n(4)), 4))));
  EXPECT_FALSE(isProved(f.below(f.subtract(j, n(3)), f.scaled(f.quotient(j, n(4)), 4))));
  EXPECT_TRUE(isProved(f.below(f.minimum(j, d), n(16))));
  EXPECT_TRUE(isProved(f.atMost(d, f.maximum(j, d))));
}

TEST_F(ProverTest, FactsOfABranch) {
  const Expr rows = f.element(f.named({"rows", {}}), Sort::Integer, {i});
  EXPECT_FALSE(isProved(f.atMost(n(0), rows)));
  {
    Formulas::Branch low(f, f.atMost(n(3), rows));
    EXPECT_TRUE(isProved(f.atMost(n(0), rows)));
    EXPECT_TRUE(isProved(f.atMost(n(12), f.scaled(rows, 4))));
    Formulas::Branch high(f, f.below(rows, past));
    EXPECT_TRUE(isProved(f.below(n(3), past)));
    EXPECT_FALSE(isProved(f.below(n(4), past)));
  }
  EXPECT_FALSE(isProved(f.atMost(n(0), rows)));
  // The parts of a conjunction, and of a disjunction that does not hold.
  Formulas::Branch both(f, f.disjunction({f.below(rows, n(2)), f.below(total, rows)}), false);
  EXPECT_TRUE(isProved(f.atMost(n(2), rows)));
  EXPECT_TRUE(isProved(f.atMost(rows, total)));
}

TEST_F(ProverTest, AQuestionTakesBoundedWork) {
  // Many bounded atoms, and as many facts that do not help.
  Expr sum = n(-1);
  std::vector<std::unique_ptr<Formulas::Branch>> branches;
  for (int turn = 0; turn < 60; ++turn) {
    const Expr k = f.index("k", f.add(past, n(turn + 1)));
    const Expr part = f.remainder(f.multiply(k, j), f.add(length, n(turn)));
    sum = f.add(sum, f.subtract(part, f.minimum(k, i)));
    branches.push_back(std::make_unique<Formulas::Branch>(f, f.below(part, k)));
  }
  const size_t before = f.prover().steps();
  EXPECT_FALSE(f.isProvedNonNegative(sum));
  EXPECT_LE(f.prover().steps() - before, Prover::mostSteps);
}

} // namespace
} // namespace kvopt::meaning
