// The laws of the arithmetic, and what each status does.
#include "check/arithmetic/field.h"

#include <gtest/gtest.h>

#include <set>

namespace kvopt::check {
namespace {

bool isPrime(uint64_t number) {
  for (uint64_t divisor = 2; divisor * divisor <= number; ++divisor)
    if (number % divisor == 0)
      return false;
  return number > 1;
}

TEST(CheckField, TheModuliArePrimesOfTheRequiredForm) {
  for (uint32_t seed : {0u, 1u, 2u, 1u << 31, ~0u}) {
    const Field field(seed);
    const uint32_t p = field.modulusP(), q = field.modulusQ();
    EXPECT_GT(p, 1u << 30);
    EXPECT_LT(p, 1u << 31); // sums of two products fit in 64 bits
    EXPECT_TRUE(isPrime(p));
    EXPECT_TRUE(isPrime(q));
    EXPECT_EQ(p, 2 * uint64_t(q) + 1);
    for (uint32_t modulus : {p, q}) {
      EXPECT_EQ(modulus % 4, 3u);
      for (uint32_t base : {2, 3, 5, 7, 11, 13})
        EXPECT_EQ(field.power(base, (modulus - 1) / 2, modulus), 1u) << base;
    }
  }
}

TEST(CheckField, SeedsDrawTheModuli) {
  std::set<uint32_t> drawn;
  constexpr uint32_t seeds = 200;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    drawn.insert(Field(seed).modulusQ());
    EXPECT_EQ(Field(seed).modulusQ(), Field(seed).modulusQ());
  }
  EXPECT_GT(drawn.size(), seeds * 9 / 10);
}

TEST(CheckField, ExponentialOfASumIsTheProduct) {
  const Field field(0);
  const Exact a = field.arbitrary(1), b = field.arbitrary(2);
  const Exact whole = field.exponential(field.add(a, b));
  const Exact parts = field.multiply(field.exponential(a), field.exponential(b));
  EXPECT_TRUE(whole.isEqual(parts));
  EXPECT_FALSE(whole.isEqual(field.exponential(a)));
  EXPECT_TRUE(field.exponential({}).isEqual(field.integer(1)));
}

TEST(CheckField, AnExponentialOfAnExponentialIsUndecided) {
  const Field field(0);
  const Exact once = field.exponential(field.arbitrary(1));
  const Exact twice = field.exponential(once);
  EXPECT_EQ(twice.status, Status::Undecided);
  EXPECT_FALSE(twice.isEqual(twice));
  EXPECT_EQ(field.exponential(field.withExponent(once)).status, Status::Number);
}

TEST(CheckField, QuotientsAndRootsAreExact) {
  const Field field(1);
  const Exact third = field.fraction(1, 3);
  EXPECT_TRUE(field.multiply(third, field.integer(3)).isEqual(field.integer(1)));
  EXPECT_TRUE(field.invert(field.integer(3)).isEqual(third));
  const Exact root = field.fraction(1, 8, 2);
  EXPECT_TRUE(field.multiply(root, root).isEqual(field.fraction(1, 8)));
  const Exact fourth = field.fraction(1, 8, 4);
  EXPECT_TRUE(field.multiply(fourth, fourth).isEqual(root));
  EXPECT_TRUE(field.dyadic(3, -2).isEqual(field.fraction(3, 4)));
  EXPECT_TRUE(field.negate(field.integer(5)).isEqual(field.integer(-5)));
}

TEST(CheckField, StatusesFollowTheRealNumbers) {
  const Field field(0);
  const Exact number = field.integer(7);
  const Exact minus{0, 0, Status::MinusInfinity}, plus{0, 0, Status::PlusInfinity};
  const Exact fill{0, 0, Status::Fill}, hidden{0, 0, Status::Unspecified};
  EXPECT_EQ(field.add(number, minus).status, Status::MinusInfinity);
  EXPECT_EQ(field.add(minus, plus).status, Status::NotANumber);
  EXPECT_EQ(field.add(hidden, minus).status, Status::MinusInfinity);
  EXPECT_EQ(field.add(number, hidden).status, Status::Unspecified);
  EXPECT_EQ(field.add(fill, minus).status, Status::MinusInfinity);
  EXPECT_TRUE(field.exponential(minus).isZero());
  EXPECT_TRUE(field.exponential(fill).isZero());
  // A hidden row has no weight; infinity times zero is not a number.
  EXPECT_TRUE(field.multiply({}, hidden).isZero());
  EXPECT_EQ(field.multiply({}, minus).status, Status::NotANumber);
  EXPECT_EQ(field.multiply(minus, number, -1).status, Status::PlusInfinity);
  EXPECT_EQ(field.divide({}, {}).status, Status::NotANumber);
  EXPECT_FALSE(minus.isEqual(fill));
}

TEST(CheckField, DivisionByZeroIsUndecidedForTheSignOfZeroIsUnknown) {
  const Field field(0);
  const Exact zero, number = field.integer(7);
  const Exact infinity = field.divide(number, zero);
  EXPECT_EQ(infinity.status, Status::Undecided);
  EXPECT_EQ(field.invert(zero).status, Status::Undecided);
  // Neither 1 / (7 / 0) nor 0 * (7 / 0) is known to be zero.
  EXPECT_EQ(field.divide(number, infinity).status, Status::Undecided);
  EXPECT_EQ(field.multiply(zero, infinity).status, Status::Undecided);
  ExactSum products(field);
  products.add(zero, infinity);
  EXPECT_EQ(products.sum(true).status, Status::Undecided);
}

TEST(CheckField, SumsHaveTheStatusOfTheirTerms) {
  const Field field(0);
  ExactSum scores(field);
  scores.add(field.integer(2));
  scores.add({0, 0, Status::MinusInfinity});
  EXPECT_EQ(scores.sum(false).status, Status::MinusInfinity);
  ExactSum products(field);
  products.add(field.integer(2), field.integer(3));
  products.add({}, {0, 0, Status::Unspecified});
  EXPECT_TRUE(products.sum(true).isEqual(field.integer(6)));
  products.add(field.integer(1), {0, 0, Status::Unspecified});
  EXPECT_EQ(products.sum(true).status, Status::Unspecified);
}

TEST(CheckField, SumsOfManyProductsDoNotOverflow) {
  const Field field(0);
  const Exact largest{field.modulusP() - 1, field.modulusQ() - 1}; // -1
  ExactSum sum(field);
  for (int i = 0; i < 1000; ++i)
    sum.add(largest, largest);
  EXPECT_TRUE(sum.sum(true).isEqual(field.integer(1000)));
}

TEST(CheckField, AMaximumBeforeAnExponentialCancels) {
  const Field field(0);
  const Exact a = field.arbitrary(1), b = field.arbitrary(2);
  ExactBound bound(field, true), other(field, true);
  bound.add(a);
  bound.add(b);
  other.add(b);
  other.add(a);
  EXPECT_TRUE(bound.bound().isEqual(other.bound()));
  auto weight = [&](const Exact& top) {
    const Exact x = field.exponential(field.add(a, field.negate(top)));
    const Exact y = field.exponential(field.add(b, field.negate(top)));
    return field.multiply(x, field.invert(field.add(x, y)));
  };
  EXPECT_TRUE(weight(bound.bound()).isEqual(weight({})));
}

} // namespace
} // namespace kvopt::check
