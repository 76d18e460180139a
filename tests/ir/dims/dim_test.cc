// Algebra, printing, parsing, division and the soundness of the predicates of Dim, against plain
// 128-bit evaluation at random points.
#include "ir/dims/dim.h"
#include "support/format.h"

#include <array>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

namespace kvopt {
using namespace ir;

namespace {

constexpr int64_t int64Max = std::numeric_limits<int64_t>::max();
constexpr int64_t int64Min = std::numeric_limits<int64_t>::min();

constexpr std::array<const char*, 4> names = {"a", "b", "long_symbol_name.0", "z:1"};
using Point = std::array<int64_t, names.size()>;

Dim sym(llvm::StringRef name) { return Dim::symbol(name); }

Dim parsed(llvm::StringRef text) {
  std::optional<Dim> dim = Dim::parse(text);
  EXPECT_TRUE(dim.has_value()) << text.str();
  return dim.value_or(Dim::unknown());
}

std::optional<int64_t> at(const Dim& dim, const Point& point) {
  return dim.evaluate([&](llvm::StringRef name) -> std::optional<int64_t> {
    for (size_t i = 0; i < names.size(); ++i)
      if (name == names[i])
        return point[i];
    return std::nullopt;
  });
}

class Source {
public:
  explicit Source(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(bound));
  }
  // Zeros and ones are where predicates break: they come often.
  Point point() {
    Point result{};
    for (int64_t& x : result)
      x = below(2) ? below(2) : below(9);
    return result;
  }
  Dim dim(int64_t termCount = 4) {
    Dim total = Dim::fixed(below(3) ? below(9) - 4 : 0);
    for (int64_t i = below(termCount); i > 0; --i) {
      Dim term = Dim::fixed(below(7) - 3);
      for (int64_t j = below(3); j > 0; --j)
        term = term * sym(names[static_cast<size_t>(below(names.size()))]);
      total = total + term;
    }
    return total;
  }

private:
  std::mt19937_64 engine_;
};

TEST(Dim, UnknownIsTheDefaultAndProvesNothing) {
  Dim unknown;
  EXPECT_TRUE(unknown.isUnknown());
  EXPECT_EQ(unknown, Dim::unknown());
  EXPECT_EQ(hash_value(unknown), hash_value(Dim::unknown()));
  EXPECT_FALSE(unknown.value().has_value());
  EXPECT_FALSE(unknown.isKnownEqual(unknown));
  EXPECT_FALSE(unknown.isKnownDifferent(unknown));
  EXPECT_FALSE(unknown.isKnownNonNegative());
  EXPECT_FALSE(unknown.isKnownPositive());
  EXPECT_FALSE(unknown.isKnownLess(Dim::fixed(0)));
  EXPECT_FALSE(Dim::fixed(-1).isKnownLess(unknown));
  EXPECT_FALSE(unknown.isKnownLessEqual(unknown));
  EXPECT_TRUE((unknown + Dim::fixed(1)).isUnknown());
  EXPECT_TRUE((Dim::fixed(0) * unknown).isUnknown());
  EXPECT_TRUE((-unknown).isUnknown());
  EXPECT_TRUE((unknown - unknown).isUnknown());
  EXPECT_FALSE(unknown.dividedBy(Dim::fixed(1)).has_value());
  EXPECT_FALSE(Dim::fixed(1).dividedBy(unknown).has_value());
  EXPECT_FALSE(at(unknown, {}).has_value());
  EXPECT_TRUE(unknown.symbols().empty());
  EXPECT_NE(unknown, Dim::fixed(0));
}

TEST(Dim, RingLawsHoldStructurally) {
  Source source(1);
  for (int i = 0; i < 3000; ++i) {
    Dim a = source.dim(), b = source.dim(), c = source.dim();
    ASSERT_EQ(a + b, b + a);
    ASSERT_EQ(a * b, b * a);
    ASSERT_EQ((a + b) + c, a + (b + c));
    ASSERT_EQ((a * b) * c, a * (b * c));
    ASSERT_EQ(a * (b + c), a * b + a * c);
    ASSERT_EQ(a - a, Dim::fixed(0));
    ASSERT_EQ(-(-a), a);
    ASSERT_EQ(a - b, a + -b);
    ASSERT_EQ(a * Dim::fixed(1), a);
    ASSERT_EQ(a * Dim::fixed(0), Dim::fixed(0));
    ASSERT_EQ(hash_value(a + b), hash_value(b + a));
    ASSERT_TRUE((a + b).isKnownEqual(b + a));
  }
}

TEST(Dim, ArithmeticCommutesWithEvaluation) {
  Source source(2);
  for (int i = 0; i < 3000; ++i) {
    Dim a = source.dim(), b = source.dim();
    Point point = source.point();
    int64_t x = at(a, point).value(), y = at(b, point).value();
    ASSERT_EQ(at(a + b, point), x + y);
    ASSERT_EQ(at(a - b, point), x - y);
    ASSERT_EQ(at(a * b, point), x * y);
    ASSERT_EQ(at(-a, point), -x);
  }
}

TEST(Dim, PredicatesAreSound) {
  Source source(3);
  int equal = 0, different = 0, nonNegative = 0, positive = 0, less = 0, lessEqual = 0;
  for (int i = 0; i < 6000; ++i) {
    Dim a = source.dim(3);
    Dim b = source.below(2) ? source.dim(3) : a + Dim::fixed(source.below(3) - 1);
    equal += a.isKnownEqual(b);
    different += a.isKnownDifferent(b);
    nonNegative += a.isKnownNonNegative();
    positive += a.isKnownPositive();
    less += a.isKnownLess(b);
    lessEqual += a.isKnownLessEqual(b);
    ASSERT_FALSE(a.isKnownEqual(b) && a.isKnownDifferent(b));
    ASSERT_EQ(a.isKnownDifferent(b), b.isKnownDifferent(a));
    for (int j = 0; j < 20; ++j) {
      Point point = source.point();
      int64_t x = at(a, point).value(), y = at(b, point).value();
      ASSERT_TRUE(!a.isKnownEqual(b) || x == y) << a.str() << " | " << b.str();
      ASSERT_TRUE(!a.isKnownDifferent(b) || x != y) << a.str() << " | " << b.str();
      ASSERT_TRUE(!a.isKnownNonNegative() || x >= 0) << a.str();
      ASSERT_TRUE(!a.isKnownPositive() || x > 0) << a.str();
      ASSERT_TRUE(!a.isKnownLess(b) || x < y) << a.str() << " | " << b.str();
      ASSERT_TRUE(!a.isKnownLessEqual(b) || x <= y) << a.str() << " | " << b.str();
    }
  }
  // The soundness above is worth something only if the predicates say yes often enough.
  for (int count : {equal, different, nonNegative, positive, less, lessEqual})
    EXPECT_GT(count, 150);
}

TEST(Dim, PredicatesProveWhatShapesNeed) {
  Dim past = sym("P"), sequence = sym("S"), batch = sym("B");
  EXPECT_TRUE((past + sequence).isKnownEqual(sequence + past));
  EXPECT_FALSE(past.isKnownEqual(sequence));
  EXPECT_FALSE(past.isKnownDifferent(sequence));
  EXPECT_FALSE(past.isKnownDifferent(Dim::fixed(0)));
  EXPECT_TRUE(past.isKnownDifferent(past + Dim::fixed(1)));
  EXPECT_TRUE((batch + Dim::fixed(1)).isKnownDifferent(-sequence));
  EXPECT_TRUE((Dim::fixed(2) * past).isKnownDifferent(Dim::fixed(4) * sequence + Dim::fixed(1)));
  EXPECT_FALSE((Dim::fixed(2) * past).isKnownDifferent(Dim::fixed(4) * sequence + Dim::fixed(2)));
  EXPECT_TRUE((past * sequence).isKnownNonNegative());
  EXPECT_FALSE(past.isKnownPositive());
  EXPECT_TRUE((past + Dim::fixed(1)).isKnownPositive());
  EXPECT_FALSE((past - Dim::fixed(1)).isKnownNonNegative());
  EXPECT_TRUE(past.isKnownLessEqual(past + sequence));
  EXPECT_FALSE(past.isKnownLess(past + sequence));
  EXPECT_TRUE(past.isKnownLess(past + sequence + Dim::fixed(1)));
  EXPECT_TRUE(Dim::fixed(0).isKnownLessEqual(past));
  EXPECT_TRUE(Dim::fixed(0).isKnownNonNegative());
  EXPECT_FALSE(Dim::fixed(0).isKnownPositive());
}

TEST(Dim, ExtremeConstantsCompareWithoutOverflow) {
  Dim least = Dim::fixed(int64Min), greatest = Dim::fixed(int64Max);
  EXPECT_TRUE(least.isKnownDifferent(greatest));
  EXPECT_TRUE(least.isKnownLess(greatest));
  EXPECT_FALSE(greatest.isKnownLess(least));
  EXPECT_TRUE(least.isKnownLessEqual(greatest));
  EXPECT_FALSE(greatest.isKnownLessEqual(least));
  EXPECT_FALSE((sym("P") + least).isKnownLess(sym("P") + greatest)) << "cannot be computed";
  EXPECT_TRUE((Dim::fixed(int64Min) * sym("P")).isKnownDifferent(Dim::fixed(1)));
}

TEST(Dim, OverflowGivesUnknown) {
  Dim big = Dim::fixed(int64Max), p = sym("P");
  EXPECT_TRUE((big + Dim::fixed(1)).isUnknown());
  EXPECT_TRUE((Dim::fixed(int64Min) - Dim::fixed(1)).isUnknown());
  EXPECT_TRUE((-Dim::fixed(int64Min)).isUnknown());
  EXPECT_TRUE((big * Dim::fixed(2)).isUnknown());
  EXPECT_TRUE((big * p + p).isUnknown());
  EXPECT_TRUE((big * p * Dim::fixed(2)).isUnknown());
  EXPECT_EQ((big * p - p).str(), "9223372036854775806*P");
  // Intermediate sums may leave the range as long as the result is back inside.
  Dim half = Dim::fixed(int64_t(1) << 62);
  Dim left = half * p + half;
  Dim product = left * (p + Dim::fixed(1)) - Dim::fixed(0);
  EXPECT_TRUE(product.isUnknown()) << "2^63 * P does not fit";
  EXPECT_EQ(left * (p - Dim::fixed(1)), half * p * p - half);
}

TEST(Dim, EvaluationReportsOverflowAndMissingSymbols) {
  Dim square = sym("a") * sym("a");
  EXPECT_EQ(at(square, {3}), 9);
  EXPECT_FALSE(at(square, {int64_t(1) << 32}).has_value());
  EXPECT_FALSE(at(sym("a") + Dim::fixed(1), {int64Max}).has_value());
  EXPECT_EQ(at(sym("a") + sym("b") - sym("z:1"), {int64Max, int64Max, 0, int64Max}), int64Max);
  EXPECT_FALSE(at(sym("elsewhere"), {}).has_value());
  // A factor of zero wins over the overflow of the others.
  EXPECT_EQ(at(square * sym("b"), {int64_t(1) << 32, 0}), 0);
  EXPECT_EQ(at(Dim::fixed(7), {}), 7);
}

TEST(Dim, SizeIsCapped) {
  Dim sum = Dim::fixed(0);
  for (size_t i = 0; i < Dim::maxTerms; ++i)
    sum = sum + sym("s" + std::to_string(i));
  EXPECT_FALSE(sum.isUnknown());
  EXPECT_TRUE((sum + sym("another")).isUnknown());
  EXPECT_TRUE((sum * sum).isUnknown());

  Dim power = Dim::fixed(1);
  for (size_t i = 0; i < Dim::maxDegree; ++i)
    power = power * sym("x");
  EXPECT_FALSE(power.isUnknown());
  EXPECT_TRUE((power * sym("x")).isUnknown());

  EXPECT_TRUE(Dim::symbol("").isUnknown());
  EXPECT_FALSE(Dim::symbol(std::string(Dim::maxNameBytes, 'n')).isUnknown());
  EXPECT_TRUE(Dim::symbol(std::string(Dim::maxNameBytes + 1, 'n')).isUnknown());
}

TEST(Dim, DivisionUndoesMultiplication) {
  Source source(4);
  int divided = 0;
  for (int i = 0; i < 5000; ++i) {
    Dim a = source.dim(), b = source.dim();
    std::optional<Dim> quotient = (a * b).dividedBy(b);
    if (quotient) {
      ASSERT_EQ(*quotient, a) << a.str() << " | " << b.str();
      ++divided;
    } else {
      // Refused only because b has a zero among the positive points, or may have one.
      bool negative = (-b).isKnownNonNegative(), positive = b.isKnownNonNegative();
      ASSERT_TRUE(b.value() == 0 || (!negative && !positive)) << a.str() << " | " << b.str();
    }
    std::optional<Dim> any = a.dividedBy(b);
    ASSERT_TRUE(!any || *any * b == a) << a.str() << " | " << b.str();
  }
  EXPECT_GT(divided, 1000);
}

TEST(Dim, DivisionIsExactOrRefused) {
  EXPECT_EQ(parsed("B*T").dividedBy(sym("B")), sym("T"));
  EXPECT_EQ(parsed("B*T").dividedBy(parsed("B*T")), Dim::fixed(1));
  EXPECT_EQ(parsed("6*P + 4*S").dividedBy(Dim::fixed(2)), parsed("3*P + 2*S"));
  EXPECT_EQ(parsed("P*P + 2*P*S + S*S").dividedBy(parsed("P + S")), parsed("P + S"));
  EXPECT_EQ(parsed("P*P - S*S").dividedBy(parsed("P + S")), parsed("P - S"));
  EXPECT_EQ(Dim::fixed(0).dividedBy(sym("P")), Dim::fixed(0));
  EXPECT_EQ(Dim::fixed(-12).dividedBy(Dim::fixed(4)), Dim::fixed(-3));
  EXPECT_EQ(Dim::fixed(5).dividedBy(Dim::fixed(2)), std::nullopt);
  EXPECT_EQ(sym("P").dividedBy(Dim::fixed(2)), std::nullopt);
  EXPECT_EQ(sym("P").dividedBy(sym("S")), std::nullopt);
  EXPECT_EQ(parsed("P + 1").dividedBy(sym("P")), std::nullopt);
  EXPECT_EQ(parsed("P*P + 1").dividedBy(parsed("P + 1")), std::nullopt);
  EXPECT_EQ(Dim::fixed(0).dividedBy(Dim::fixed(0)), std::nullopt);
  EXPECT_EQ(sym("P").dividedBy(Dim::fixed(0)), std::nullopt);
  EXPECT_EQ(parsed("P*P - S*S").dividedBy(parsed("P - S")), std::nullopt) << "P may equal S";
  EXPECT_EQ(parsed("2*S - 2").dividedBy(parsed("S - 1")), std::nullopt) << "S may be 1";
  EXPECT_EQ(Dim::fixed(int64Min).dividedBy(Dim::fixed(-1)), std::nullopt);
  EXPECT_EQ((Dim::fixed(int64Min) * sym("P")).dividedBy(-sym("P")), std::nullopt);
}

TEST(Dim, SymbolsAndSubstitution) {
  Dim dim = parsed("b*a + 2*a*a - c + 7");
  auto symbols = dim.symbols();
  EXPECT_EQ(std::vector<std::string>(symbols.begin(), symbols.end()),
            (std::vector<std::string>{"a", "b", "c"}));
  // Simultaneous: a and b swap.
  Dim swapped = dim.substitute([](llvm::StringRef name) -> std::optional<Dim> {
    if (name == "a")
      return Dim::symbol("b");
    if (name == "b")
      return Dim::symbol("a");
    return std::nullopt;
  });
  EXPECT_EQ(swapped, parsed("a*b + 2*b*b - c + 7"));
  Dim constant = dim.substitute([](llvm::StringRef) { return Dim::fixed(2); });
  EXPECT_EQ(constant.value(), 4 + 8 - 2 + 7);
  EXPECT_TRUE(dim.substitute([](llvm::StringRef) { return Dim::unknown(); }).isUnknown());
  EXPECT_TRUE(Dim().substitute([](llvm::StringRef) { return Dim::fixed(1); }).isUnknown());

  Source source(5);
  for (int i = 0; i < 500; ++i) {
    Dim outer = source.dim(), inner = source.dim();
    Point point = source.point(), moved = point;
    moved[0] = at(inner, point).value();
    Dim result = outer.substitute([&](llvm::StringRef name) -> std::optional<Dim> {
      return name == names[0] ? std::optional<Dim>(inner) : std::nullopt;
    });
    ASSERT_EQ(at(result, point), at(outer, moved)) << outer.str() << " | " << inner.str();
  }
}

TEST(Dim, PrintsInCanonicalOrder) {
  EXPECT_EQ((sym("sequence_length") + sym("past_sequence_length")).str(),
            "past_sequence_length + sequence_length");
  EXPECT_EQ((sym("batch") * Dim::fixed(4)).str(), "4*batch");
  EXPECT_EQ(parsed("1 + c + b*a + -2*a*a").str(), "-2*a*a + a*b + c + 1");
  EXPECT_EQ(parsed("b*c*a + a*a*b").str(), "a*a*b + a*b*c");
  EXPECT_EQ((-sym("x") - Dim::fixed(3)).str(), "-x - 3");
  EXPECT_EQ(Dim::fixed(-5).str(), "-5");
  EXPECT_EQ(Dim::fixed(0).str(), "0");
  EXPECT_EQ(Dim().str(), "?");
  EXPECT_EQ(formatted("[{:>5}]", parsed("a+b")), "[a + b]");
  EXPECT_EQ(formatted("[{:>5}]", sym("a")), "[    a]");
}

TEST(Dim, NamesThatAreNoIdentifiersStayApart) {
  EXPECT_EQ(sym("a // b").str(), "a // b");
  EXPECT_EQ((Dim::fixed(2) * sym("a + b")).str(), "2*{a + b}");
  EXPECT_NE(sym("a + b"), parsed("a + b"));
  EXPECT_EQ(Dim::parse("2*{a + b}"), std::nullopt);
  EXPECT_NE((Dim::fixed(2) * sym("x y} + {z w")).str(),
            (Dim::fixed(2) * sym("x y") + sym("z w")).str());
}

TEST(Dim, ParseReadsBackWhatStrPrints) {
  Source source(6);
  for (int i = 0; i < 3000; ++i) {
    Dim dim = source.dim(6);
    ASSERT_EQ(Dim::parse(dim.str()), dim) << dim.str();
  }
  for (Dim dim :
       {Dim(), Dim::fixed(int64Min), Dim::fixed(int64Max), Dim::fixed(int64Min) * sym("x"),
        sym("x") + Dim::fixed(int64Min), sym("x") * sym("x") + Dim::fixed(int64Min) * sym("x")})
    EXPECT_EQ(Dim::parse(dim.str()), dim) << dim.str();
}

TEST(Dim, ParseAcceptsTheGrammar) {
  EXPECT_EQ(parsed("  ( P+S )*2 "), Dim::fixed(2) * (sym("P") + sym("S")));
  EXPECT_EQ(parsed("a - b - c"), sym("a") - sym("b") - sym("c"));
  EXPECT_EQ(parsed("a - (b - c)"), sym("a") - sym("b") + sym("c"));
  EXPECT_EQ(parsed("-(a + 1)*b"), -sym("a") * sym("b") - sym("b"));
  EXPECT_EQ(parsed("2*-3"), Dim::fixed(-6));
  EXPECT_EQ(parsed("- - 3 - -4"), Dim::fixed(7));
  EXPECT_EQ(parsed("onnx::Shape_12.dim_0"), sym("onnx::Shape_12.dim_0"));
  EXPECT_EQ(parsed("_x"), sym("_x"));
  EXPECT_TRUE(parsed(" ? ").isUnknown());
}

TEST(Dim, ParseRefusesTheRest) {
  for (const char* text : {"",
                           " ",
                           "a b",
                           "a/b",
                           "a//b",
                           "a % b",
                           "max(a, b)",
                           "f(a)",
                           "(a",
                           "a)",
                           "()",
                           "a +",
                           "+ a",
                           "* a",
                           "a ** 2",
                           "4batch",
                           "1.5",
                           "1e3",
                           "0x10",
                           "a? + 1",
                           "? + 1",
                           "a\nb",
                           "'a'",
                           ".a",
                           ":a",
                           "9223372036854775808",
                           "99999999999999999999999999",
                           "a*9223372036854775807*2",
                           "h\xc3\xb6he",
                           "{a}"})
    EXPECT_EQ(Dim::parse(text), std::nullopt) << text;
  EXPECT_EQ(Dim::parse(llvm::StringRef("a\0b", 3)), std::nullopt);
  EXPECT_EQ(Dim::parse(std::string(1000000, '(')), std::nullopt);
  EXPECT_EQ(Dim::parse(std::string(2000, '(') + "a" + std::string(2000, ')')), std::nullopt);
  EXPECT_EQ(Dim::parse(std::string(2000, '-') + "a"), std::nullopt);
  EXPECT_EQ(Dim::parse(std::string(10, '(') + "a" + std::string(10, ')')), sym("a"));
  std::string power = "x";
  for (size_t i = 0; i < Dim::maxDegree; ++i)
    power += "*x";
  EXPECT_EQ(Dim::parse(power), std::nullopt);
}

TEST(Dim, RandomTextNeverBreaksTheParser) {
  Source source(7);
  llvm::StringRef alphabet = "ab19+-*()  ?/";
  int accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string text;
    for (int64_t j = source.below(12); j > 0; --j)
      text += alphabet[static_cast<size_t>(source.below(static_cast<int64_t>(alphabet.size())))];
    if (std::optional<Dim> dim = Dim::parse(text)) {
      ++accepted;
      ASSERT_EQ(Dim::parse(dim->str()), dim) << text;
    }
  }
  EXPECT_GT(accepted, 1000);
}

} // namespace
} // namespace kvopt
