// Each rule of simplification has a formula that is another one without it.
#include "ir/element_type.h"
#include "meaning/expression/printer.h"

#include <gtest/gtest.h>

namespace kvopt::meaning {
namespace {

/// Sizes and indices as a decoder has them.
class Simplification : public testing::Test {
protected:
  std::string text(Expr expr) { return printed(f, expr); }
  Expr n(int64_t value) { return f.integer(value); }

  Formulas f{Formulas::Reals::OverReals};
  const Expr batch = f.symbol("B"), length = f.symbol("S"), past = f.symbol("P", {0, mostExtent});
  const Expr total = f.add(past, length);
  const Expr i = f.index("i", length), j = f.index("j", total), d = f.index("d", n(16)),
             b = f.index("b", batch);
  const int64_t mask = f.named({"mask", {0, 1}}), ids = f.named({"ids", {}});
  Expr maskAt(Expr at) { return f.element(mask, Sort::Integer, at); }
  Expr idAt(Expr at) { return f.element(ids, Sort::Integer, at); }
};

TEST_F(Simplification, Polynomials) {
  EXPECT_EQ(text(f.add(f.subtract(i, j), j)), "i");
  EXPECT_EQ(f.multiply(f.add(i, n(1)), f.subtract(i, n(1))), f.subtract(f.multiply(i, i), n(1)));
  EXPECT_EQ(f.multiply(i, j), f.multiply(j, i));
  EXPECT_EQ(text(f.scaled(f.add(i, n(2)), 3)), "3*i + 6");
  EXPECT_EQ(text(f.multiply(i, n(0))), "0");
}

TEST_F(Simplification, NumbersThatDoNotFitAreAtoms) {
  const Expr large = f.scaled(i, int64_t(1) << 62);
  const Expr sum = f.add(large, large);
  EXPECT_EQ(f.arena()[sum].op, Op::Wide);
  EXPECT_EQ(f.subtract(sum, sum), n(0));
  EXPECT_EQ(f.arena()[f.multiply(large, n(4))].op, Op::Wide);
}

TEST_F(Simplification, QuotientsAndRemainders) {
  // Exact ones, and what is below the divisor.
  EXPECT_EQ(f.quotient(f.multiply(i, length), length), i);
  EXPECT_EQ(f.quotient(f.add(f.multiply(b, length), i), length), b);
  EXPECT_EQ(f.remainder(f.add(f.multiply(b, length), i), length), i);
  EXPECT_EQ(f.quotient(d, n(16)), n(0));
  EXPECT_EQ(f.remainder(d, n(16)), d);
  // Of what is negative by less than the divisor.
  EXPECT_EQ(text(f.quotient(f.subtract(d, n(16)), n(16))), "-1");
  EXPECT_EQ(f.remainder(f.subtract(d, n(16)), n(16)), d);
  // A factor of both.
  EXPECT_EQ(text(f.quotient(f.add(f.scaled(j, 16), d), n(64))), "j//4");
  EXPECT_EQ(text(f.remainder(f.add(f.scaled(j, 16), d), n(64))), "d + 16*j%4");
  EXPECT_EQ(text(f.quotient(f.multiply(j, length), f.scaled(length, 4))), "j//4");
  // Of quotients and remainders.
  EXPECT_EQ(text(f.quotient(f.quotient(j, n(3)), n(5))), "j//15");
  EXPECT_EQ(text(f.remainder(f.remainder(j, n(12)), n(4))), "j%4");
  EXPECT_EQ(text(f.quotientUp(f.scaled(j, 4), n(4))), "j");
  // Of a choice.
  const Expr choice = f.select(f.below(j, past), j, f.scaled(j, 16));
  EXPECT_EQ(text(f.quotient(choice, n(16))), "select(j < P, j//16, j)");
  // Of numbers.
  EXPECT_EQ(f.quotient(n(-7), n(2)), n(-4));
  EXPECT_EQ(f.remainder(n(-7), n(2)), n(1));
  EXPECT_EQ(f.quotient(j, n(0)), n(0));
  EXPECT_EQ(f.remainder(j, n(0)), n(0));
}

TEST_F(Simplification, ADivisorThatMayBeZeroIsKept) {
  EXPECT_EQ(text(f.quotient(f.multiply(d, past), past)), "(P*d)//P");
  const Expr row = f.index("row", past);
  // Where there is a row, there is a past.
  Formulas::Branch branch(f, f.below(n(0), past));
  EXPECT_EQ(f.quotient(f.add(f.multiply(d, past), row), past), d);
}

TEST_F(Simplification, Extremes) {
  EXPECT_EQ(f.minimum(i, length), i);
  EXPECT_EQ(f.maximum(f.minimum(j, total), n(0)), j);
  EXPECT_EQ(text(f.minimum(f.minimum(i, d), f.add(i, n(1)))), text(f.minimum(i, d)));
  EXPECT_EQ(f.minimum(i, d), f.minimum(d, i));
  EXPECT_EQ(f.minimum(past, n(INT64_MAX)), past);
}

TEST_F(Simplification, Inequalities) {
  EXPECT_EQ(text(f.below(i, length)), "true");
  EXPECT_EQ(text(f.below(length, i)), "false");
  EXPECT_EQ(text(f.atMost(f.scaled(j, 3), n(5))), "j <= 1");
  EXPECT_EQ(text(f.below(i, f.add(past, n(2)))), text(f.atMost(i, f.add(past, n(1)))));
  EXPECT_EQ(text(f.below(f.minimum(i, d), n(3))),
            text(f.disjunction({f.below(i, n(3)), f.below(d, n(3))})));
  const Expr bit = f.select(f.below(j, past), n(1), n(0));
  EXPECT_EQ(text(f.below(n(0), bit)), "j < P");
  EXPECT_EQ(text(f.equal(bit, n(1))), "j < P");
  EXPECT_EQ(text(f.equal(f.scaled(j, 2), n(5))), "false");
  EXPECT_EQ(f.equal(i, j), f.equal(j, i));
  EXPECT_EQ(text(f.equal(d, n(16))), "false");
  EXPECT_EQ(text(f.equal(d, n(0))), "d <= 0");
}

TEST_F(Simplification, Booleans) {
  const Expr p = f.below(j, past), q = f.below(i, d), r = f.equal(i, f.add(j, d));
  EXPECT_EQ(f.negation(f.negation(r)), r);
  EXPECT_EQ(text(f.negation(p)), "P <= j");
  EXPECT_EQ(f.conjunction({p, q}), f.conjunction({q, p, f.boolean(true), p}));
  EXPECT_EQ(f.conjunction({p, f.negation(p)}), f.boolean(false));
  EXPECT_EQ(f.disjunction({p, f.negation(p)}), f.boolean(true));
  EXPECT_EQ(f.conjunction({r, f.negation(r)}), f.boolean(false));
  EXPECT_EQ(f.conjunction({p, f.disjunction({p, q})}), p);
  EXPECT_EQ(text(f.conjunction({f.below(j, past), f.below(j, f.add(past, n(1)))})), "j < P");
  EXPECT_EQ(text(f.disjunction({f.below(j, past), f.below(j, f.add(past, n(1)))})), "j <= P");
  EXPECT_EQ(f.negation(f.conjunction({p, r})), f.disjunction({f.negation(p), f.negation(r)}));
  EXPECT_EQ(f.agreement(p, f.boolean(true)), p);
}

TEST_F(Simplification, ChoicesKnowTheirConditions) {
  const Expr p = f.below(j, past);
  auto slot = [&] { return f.select(p, j, f.subtract(j, past)); };
  // The same question on a branch has an answer there.
  EXPECT_EQ(f.select(p, slot, [&] { return n(0); }), f.select(p, j, n(0)));
  EXPECT_EQ(text(f.select(
                p, [&] { return f.quotient(j, past); }, [&] { return n(2); })),
            "select(j < P, 0, 2)");
  EXPECT_EQ(f.select(p, i, i), i);
  EXPECT_EQ(f.select(f.negation(f.equal(i, j)), d, b), f.select(f.equal(i, j), b, d));
  const Expr q = f.below(i, d);
  EXPECT_EQ(text(f.select(p, f.select(q, i, b), b)), text(f.select(f.conjunction({p, q}), i, b)));
  EXPECT_EQ(f.select(p, f.select(q, b, i), b), f.select(f.conjunction({p, f.negation(q)}), i, b));
  EXPECT_EQ(f.select(p, i, f.select(q, i, b)), f.select(f.disjunction({p, q}), i, b));
  EXPECT_EQ(f.select(p, i, f.select(q, b, i)), f.select(f.disjunction({p, f.negation(q)}), i, b));
  EXPECT_EQ(f.select(p, q, f.boolean(false)), f.conjunction({p, q}));
}

TEST_F(Simplification, TypesOfIntegers) {
  EXPECT_EQ(f.wrapped(d, ir::ElementType::Int8), d);
  EXPECT_EQ(f.wrapped(n(200), ir::ElementType::Int8), n(-56));
  EXPECT_EQ(f.wrapped(n(-1), ir::ElementType::UInt8), n(255));
  EXPECT_EQ(text(f.wrapped(j, ir::ElementType::Int32)), "int32(j)");
  EXPECT_EQ(f.wrapped(j, ir::ElementType::Int64), j);
  Formulas::Branch branch(f, f.below(total, n(1000)));
  EXPECT_EQ(f.wrapped(j, ir::ElementType::Int32), j);
}

TEST_F(Simplification, RealsThatAreIntegers) {
  auto real = [&](Expr expr) { return f.toReal(expr); };
  auto apply = [&](Function function, Expr a, Expr c) { return f.function(function, {a, c}); };
  EXPECT_EQ(f.toInteger(real(i)), i);
  EXPECT_EQ(apply(Function::Add, real(i), real(j)), real(f.add(i, j)));
  EXPECT_EQ(apply(Function::Multiply, real(i), f.real(2)), real(f.scaled(i, 2)));
  EXPECT_EQ(apply(Function::Add, f.real(1.5), f.real(0.25)), f.real(1.75));
  const Expr x = f.element(f.named({"x", {}}), Sort::Real, {i});
  EXPECT_EQ(apply(Function::Multiply, x, f.real(1)), x);
  EXPECT_EQ(apply(Function::Add, f.real(0), x), x);
  EXPECT_EQ(apply(Function::Multiply, x, f.real(0)), f.real(0));
  EXPECT_EQ(apply(Function::Divide, x, f.real(4)), apply(Function::Multiply, x, f.real(0.25)));
  EXPECT_EQ(text(f.function(Function::Floor, {apply(Function::Divide, real(j), f.real(3))})),
            "(j//3)");
  EXPECT_EQ(f.toInteger(apply(Function::Divide, real(j), f.real(3))), f.quotient(j, n(3)));
  EXPECT_EQ(f.function(Function::Round, {real(j)}), real(j));
  const Expr whole = f.function(Function::Floor, {x});
  EXPECT_EQ(real(f.toInteger(whole)), whole);
  EXPECT_EQ(f.compared(Comparison::Less, real(j), real(past)), f.below(j, past));
  EXPECT_EQ(text(f.compared(Comparison::LessOrEqual,
                            apply(Function::Multiply, real(j), f.real(0.5)), f.real(3))),
            "j <= 6");
  const Expr zeroOne = real(f.below(j, past));
  EXPECT_EQ(f.compared(Comparison::Equal, zeroOne, f.real(1)), f.below(j, past));
}

TEST(ExactReals, NothingThatRoundsIsComputed) {
  Formulas f;
  const Expr i = f.index("i", f.symbol("S"));
  const Expr sum = f.function(Function::Add, {f.real(1.5), f.real(0.25)});
  EXPECT_EQ(f.arena()[sum].op, Op::Function);
  EXPECT_EQ(f.arena()[f.toInteger(f.toReal(i))].op, Op::Truncated);
  EXPECT_EQ(sum, f.function(Function::Add, {f.real(0.25), f.real(1.5)}));
}

TEST_F(Simplification, Reductions) {
  auto sum = [&](Expr extent, llvm::function_ref<Expr(Expr)> body) {
    return f.reduce(Reduction::Sum, extent, body);
  };
  EXPECT_EQ(sum(n(1), [&](Expr k) { return f.add(k, i); }), i);
  EXPECT_EQ(sum(n(0), [&](Expr k) { return k; }), n(0));
  EXPECT_EQ(sum(length, [&](Expr) { return i; }), f.multiply(length, i));
  // Two of the same are one, whatever was made between them.
  const Expr counted = sum(total, [&](Expr k) { return maskAt(k); });
  EXPECT_EQ(counted, sum(total, [&](Expr k) { return maskAt(k); }));
  EXPECT_EQ(text(counted), "sum(k < S + P: mask[k])");
  EXPECT_EQ(text(sum(total, [&](Expr k) { return sum(k, [&](Expr l) { return maskAt(l); }); })),
            "sum(l < S + P: sum(k < l: mask[k]))");
  const Expr any = f.reduce(Reduction::Any, past, [&](Expr) { return f.below(i, d); });
  EXPECT_EQ(any, f.conjunction({f.below(n(0), past), f.below(i, d)}));
  EXPECT_EQ(f.reduce(Reduction::Any, n(0), [&](Expr k) { return f.below(k, i); }),
            f.boolean(false));
  EXPECT_EQ(f.reduce(Reduction::All, n(0), [&](Expr k) { return f.below(k, i); }), f.boolean(true));
  EXPECT_EQ(f.reduce(Reduction::Maximum, length, [&](Expr) { return d; }), d);
  EXPECT_EQ(f.reduce(Reduction::Product, n(0), [&](Expr k) { return k; }), n(1));
  EXPECT_EQ(text(sum(total, [&](Expr k) { return f.below(k, past); })),
            "sum(k < S + P: select(k < P, 1, 0))");
}

TEST_F(Simplification, LastUpdates) {
  const Expr old = idAt(j);
  auto written = [&](llvm::function_ref<Expr(Expr)> place) {
    return f.last(
        length, [&](Expr u) { return f.equal(place(u), j); }, [&](Expr u) { return maskAt(u); },
        old);
  };
  // A row for each place: the condition says which.
  EXPECT_EQ(text(written([&](Expr u) { return f.add(past, u); })),
            "select(P <= j, mask[j - P], ids[j])");
  // All to one place: the last one stays.
  EXPECT_EQ(text(written([&](Expr) { return past; })), "select(P == j, mask[S - 1], ids[j])");
  EXPECT_EQ(text(written([&](Expr u) { return f.remainder(u, n(8)); })),
            "last(k < S: mask[k] if j == k%8 else ids[j])");
  EXPECT_EQ(written([&](Expr u) { return f.subtract(n(-1), u); }), old);
}

TEST_F(Simplification, SubstitutionAsksAgain) {
  const Expr value = f.select(f.below(j, past), idAt(j), maskAt(f.subtract(j, past)));
  Substitution latest(f);
  latest.set(j, f.subtract(total, n(1)));
  EXPECT_EQ(text(latest(value)), "mask[S - 1]");
  Substitution elements(f);
  elements.setElements([&](int64_t number, Sort sort, llvm::ArrayRef<Expr> at) {
    return number == ids ? f.add(at[0], n(7)) : f.element(number, sort, at);
  });
  EXPECT_EQ(text(elements(value)), "select(j < P, j + 7, mask[j - P])");
  // A sum of 100,000 parts, one in the other.
  Expr deep = i;
  for (int turn = 0; turn < 100000; ++turn)
    deep = idAt(f.add(deep, n(1)));
  Substitution first(f);
  first.set(i, n(0));
  EXPECT_FALSE(f.arena().reads(first(deep), i));
  EXPECT_LE(printed(f, deep).size(), 4000u);
}

TEST(FullArena, AnswersNothing) {
  Formulas f(Formulas::Reals::Exact, 100);
  Expr sum = f.integer(0);
  for (int turn = 0; turn < 1000; ++turn)
    sum = f.add(sum, f.index("i", f.integer(5)));
  EXPECT_TRUE(f.arena().isFull());
  EXPECT_LE(f.arena().size(), 101u);
}

} // namespace
} // namespace kvopt::meaning
