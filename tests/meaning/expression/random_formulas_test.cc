// Random formulas are worth the same simplified as computed step by step. KVOPT_FORMULAS=N tries N
// formulas instead of a sample.
#include "meaning/expression/printer.h"
#include "tests/meaning/expression/plain_evaluation.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

namespace kvopt::meaning {
namespace {

/// Makes a formula, and a function that computes the same from the values of leaves.
class RandomFormulas {
public:
  using Values = std::map<Expr, int64_t>;
  struct Made {
    Expr expr;
    std::function<int64_t(const Values&)> value; ///< 0 or 1 for booleans
  };

  explicit RandomFormulas(unsigned seed)
      : random(seed), f(seed % 2 ? Formulas::Reals::OverReals : Formulas::Reals::Exact) {
    batch = f.symbol("B"), sequence = f.symbol("S"), past = f.symbol("P", {0, mostExtent});
    const Expr total = f.add(sequence, past);
    indices = {f.index("i", sequence), f.index("j", total), f.index("b", batch),
               f.index("d", f.integer(16)), f.index("h", f.integer(4))};
    divisors = {sequence, f.scaled(sequence, 4),       f.scaled(total, 16),
                total,    f.multiply(batch, sequence), past};
    // Numbers of a table; 0 and 1; any.
    table = f.named({"table", {0, 9}});
    mask = f.named({"mask", {0, 1}});
    any = f.named({"any", {}});
  }

  Values values() {
    Values all;
    all[batch] = between(1, 3), all[sequence] = between(1, 4), all[past] = between(0, 5);
    PlainEvaluation sizes(f, all);
    for (Expr index : indices)
      all[index] = between(0, sizes.integer(f.arena().operands(index)[0]) - 1);
    return all;
  }

  static int64_t elementOf(int64_t value, const std::vector<int64_t>& at, const RandomFormulas& r) {
    uint64_t hash = static_cast<uint64_t>(value) * 77;
    for (int64_t i : at)
      hash = (hash ^ static_cast<uint64_t>(i)) * 0x9E3779B97F4A7C15ULL;
    const auto number = static_cast<int64_t>(hash >> 40);
    return value == r.mask ? number % 2 : value == r.table ? number % 10 : number % 13 - 6;
  }

  Made integer(unsigned depth) { return checked(anyInteger(depth)); }
  Made boolean(unsigned depth) { return checked(anyBoolean(depth)); }
  Made anyInteger(unsigned depth);
  Made anyBoolean(unsigned depth);
  Made checked(Made made);
  Made reduction(unsigned depth);
  Made throughReals(unsigned depth);

  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  }
  template <class T> T anyOf(std::initializer_list<T> all) {
    return all.begin()[random() % all.size()];
  }
  template <class T> T anyOf(const std::vector<T>& all) { return all[random() % all.size()]; }

  int64_t worth(Expr expr, const Values& values) {
    PlainEvaluation plain(f, values, [this](int64_t value, const std::vector<int64_t>& at) {
      return Worth(elementOf(value, at, *this));
    });
    const Worth worth = plain.worth(expr);
    if (const bool* truth = std::get_if<bool>(&worth))
      return *truth;
    return std::get<int64_t>(worth);
  }

  std::string shown(const Values& values) const {
    std::string all;
    for (auto [leaf, value] : values)
      all += printed(f, leaf) + " = " + std::to_string(value) + "  ";
    return all;
  }

  std::mt19937_64 random;
  Formulas f;
  Expr batch, sequence, past;
  std::vector<Expr> indices, divisors;
  int64_t table = 0, mask = 0, any = 0;
  unsigned reductions = 0; ///< that are open
};

using Values = RandomFormulas::Values;

/// Compares a formula that was made without facts with what it was made of, so that the smallest
/// that is wrong is reported.
RandomFormulas::Made RandomFormulas::checked(Made made) {
  if (f.path() != 0 || reductions != 0 || testing::Test::HasFailure())
    return made;
  for (int tries = 0; tries < 6; ++tries) {
    const Values now = values();
    EXPECT_EQ(worth(made.expr, now), made.value(now))
        << printed(f, made.expr) << " for " << shown(now);
    if (testing::Test::HasFailure())
      break;
  }
  return made;
}

RandomFormulas::Made RandomFormulas::anyInteger(unsigned depth) {
  if (depth == 0 || random() % 7 == 0) {
    if (random() % 3 == 0) {
      const int64_t number = between(-4, 9);
      return {f.integer(number), [=](const Values&) { return number; }};
    }
    std::vector<Expr> leaves = indices;
    leaves.insert(leaves.end(), {batch, sequence, past});
    const Expr leaf = anyOf(leaves);
    return {leaf, [=](const Values& v) { return v.at(leaf); }};
  }
  auto part = [&] { return integer(depth - 1); };
  auto worthOf = [this](Expr expr, const Values& v) { return worth(expr, v); };
  switch (random() % 16) {
  case 0:
  case 1: {
    const Made a = part(), b = part();
    return {f.add(a.expr, b.expr), [=](const Values& v) { return a.value(v) + b.value(v); }};
  }
  case 2: {
    const Made a = part(), b = part();
    return {f.subtract(a.expr, b.expr), [=](const Values& v) { return a.value(v) - b.value(v); }};
  }
  case 3: {
    const Made a = integer(1), b = integer(1);
    return {f.multiply(a.expr, b.expr), [=](const Values& v) { return a.value(v) * b.value(v); }};
  }
  case 4: {
    const Made a = part();
    const int64_t by = anyOf<int64_t>({-2, -1, 2, 3, 4, 16});
    return {f.scaled(a.expr, by), [=](const Values& v) { return a.value(v) * by; }};
  }
  case 5:
  case 6: {
    const Made a = part();
    const int64_t by = anyOf<int64_t>({1, 2, 3, 4, 5, 8, 16});
    if (random() % 2)
      return {f.quotient(a.expr, f.integer(by)),
              [=](const Values& v) { return PlainEvaluation::quotient(a.value(v), by); }};
    return {f.remainder(a.expr, f.integer(by)),
            [=](const Values& v) { return PlainEvaluation::remainder(a.value(v), by); }};
  }
  case 7: {
    const Made a = part();
    const Expr by = random() % 8 ? anyOf(divisors) : integer(1).expr;
    if (random() % 2)
      return {f.quotient(a.expr, by), [=](const Values& v) {
                return PlainEvaluation::quotient(a.value(v), worthOf(by, v));
              }};
    return {f.remainder(a.expr, by), [=](const Values& v) {
              return PlainEvaluation::remainder(a.value(v), worthOf(by, v));
            }};
  }
  case 8: {
    const Made a = part(), b = part();
    if (random() % 2)
      return {f.minimum(a.expr, b.expr),
              [=](const Values& v) { return std::min(a.value(v), b.value(v)); }};
    return {f.maximum(a.expr, b.expr),
            [=](const Values& v) { return std::max(a.value(v), b.value(v)); }};
  }
  case 9:
  case 10: {
    const Made c = boolean(depth - 1);
    Made a, b;
    const Expr made = f.select(
        c.expr, [&] { return (a = part()).expr; }, [&] { return (b = part()).expr; });
    // Where the condition is decided, only one of them was made.
    return {made, [=](const Values& v) { return c.value(v) ? a.value(v) : b.value(v); }};
  }
  case 11: {
    // Rows and columns of one number.
    const Expr i = anyOf(indices), j = anyOf(indices), n = f.arena().operands(j)[0];
    const int64_t times = between(1, 2);
    const Expr all = f.add(f.multiply(i, n), j), by = f.scaled(n, times);
    const bool isQuotient = random() % 2;
    return {isQuotient ? f.quotient(all, by) : f.remainder(all, by), [=](const Values& v) {
              const int64_t d = worthOf(n, v) * times, a = v.at(i) * worthOf(n, v) + v.at(j);
              return isQuotient ? PlainEvaluation::quotient(a, d)
                                : PlainEvaluation::remainder(a, d);
            }};
  }
  case 12: {
    const Expr j = anyOf(indices);
    return {f.select(
                f.below(j, past), [&] { return j; }, [&] { return f.subtract(j, past); }),
            [=, this](const Values& v) {
              return v.at(j) < v.at(past) ? v.at(j) : v.at(j) - v.at(past);
            }};
  }
  case 13: {
    const Made a = part();
    const int64_t value = anyOf({table, mask, any});
    return {f.element(value, Sort::Integer, a.expr),
            [=, this](const Values& v) { return elementOf(value, {a.value(v)}, *this); }};
  }
  case 14:
    return random() % 2 ? throughReals(depth) : part();
  default:
    return reduction(depth);
  }
}

RandomFormulas::Made RandomFormulas::throughReals(unsigned depth) {
  const Made a = integer(depth - 1);
  if (random() % 2) {
    const auto type =
        anyOf({ir::ElementType::UInt8, ir::ElementType::Int8, ir::ElementType::Int32});
    return {f.wrapped(a.expr, type), [=](const Values& v) -> int64_t {
              const int64_t x = a.value(v);
              return type == ir::ElementType::UInt8 ? static_cast<int64_t>(static_cast<uint8_t>(x))
                     : type == ir::ElementType::Int8
                         ? static_cast<int64_t>(static_cast<int8_t>(x))
                         : static_cast<int64_t>(static_cast<int32_t>(x));
            }};
  }
  const double by = anyOf({1.0, 2.0, 3.0, 4.0, 0.5, -1.0});
  const Function scale = random() % 2 ? Function::Multiply : Function::Divide;
  auto scaled = [=](const Values& v) {
    const auto x = static_cast<double>(a.value(v));
    return scale == Function::Multiply ? x * by : x / by;
  };
  const Expr real = f.function(scale, {f.toReal(a.expr), f.real(by)});
  switch (random() % 4) {
  case 0:
    return {f.toInteger(real),
            [=](const Values& v) { return static_cast<int64_t>(std::trunc(scaled(v))); }};
  case 1:
    return {f.toInteger(f.function(Function::Floor, {real})),
            [=](const Values& v) { return static_cast<int64_t>(std::floor(scaled(v))); }};
  case 2:
    return {
        f.toInteger(f.function(Function::Ceiling, {f.function(Function::Add, {real, f.real(1)})})),
        [=](const Values& v) { return static_cast<int64_t>(std::ceil(scaled(v) + 1)); }};
  default: {
    const Made b = integer(depth - 1);
    const auto comparison = anyOf({Comparison::Less, Comparison::LessOrEqual, Comparison::Equal});
    return {f.toInteger(f.compared(comparison, real, f.toReal(b.expr))), [=](const Values& v) {
              const double x = scaled(v), y = static_cast<double>(b.value(v));
              return static_cast<int64_t>(comparison == Comparison::Less          ? x < y
                                          : comparison == Comparison::LessOrEqual ? x <= y
                                                                                  : x == y);
            }};
  }
  }
}

RandomFormulas::Made RandomFormulas::anyBoolean(unsigned depth) {
  switch (random() % (depth > 1 ? 6 : 3)) {
  case 0: {
    const Made a = integer(depth ? depth - 1 : 0), b = integer(depth ? depth - 1 : 0);
    return {f.below(a.expr, b.expr), [=](const Values& v) { return a.value(v) < b.value(v); }};
  }
  case 1: {
    const Made a = integer(depth ? depth - 1 : 0), b = integer(depth ? depth - 1 : 0);
    return {f.atMost(a.expr, b.expr), [=](const Values& v) { return a.value(v) <= b.value(v); }};
  }
  case 2: {
    const Made a = integer(depth ? depth - 1 : 0), b = integer(depth ? depth - 1 : 0);
    return {f.equal(a.expr, b.expr), [=](const Values& v) { return a.value(v) == b.value(v); }};
  }
  case 3: {
    const Made a = boolean(depth - 1);
    return {f.negation(a.expr), [=](const Values& v) { return !a.value(v); }};
  }
  default: {
    const Made a = boolean(depth - 1), b = boolean(depth - 1);
    if (random() % 2)
      return {f.conjunction({a.expr, b.expr}),
              [=](const Values& v) { return a.value(v) && b.value(v); }};
    return {f.disjunction({a.expr, b.expr}),
            [=](const Values& v) { return a.value(v) || b.value(v); }};
  }
  }
}

/// Over an index that only the body knows. The leaves of the body are drawn with it.
RandomFormulas::Made RandomFormulas::reduction(unsigned depth) {
  if (reductions == 2)
    return integer(depth - 1);
  ++reductions;
  const Expr extent = random() % 3 ? anyOf(divisors) : f.integer(between(0, 3));
  Made body, condition;
  Expr index;
  auto inner = [&](Expr k, auto make) {
    index = k;
    // With an extent of 1 the index is the number 0.
    const bool isIndex = f.arena()[k].op == Op::Index;
    if (isIndex)
      indices.push_back(k);
    const Made made = make();
    if (isIndex)
      indices.pop_back();
    return made;
  };
  auto worthOf = [this](Expr expr, const Values& v) { return worth(expr, v); };
  auto with = [](Values v, Expr leaf, int64_t value) {
    v[leaf] = value;
    return v;
  };
  Made made;
  switch (random() % 4) {
  case 0: {
    const Expr all = f.reduce(Reduction::Sum, extent, [&](Expr k) {
      return (body = inner(k, [&] { return integer(depth - 1); })).expr;
    });
    made = {all, [=](const Values& v) {
              int64_t sum = 0;
              for (int64_t k = 0; k < worthOf(extent, v); ++k)
                sum += body.value(with(v, index, k));
              return sum;
            }};
    break;
  }
  case 1: {
    const Reduction which = random() % 2 ? Reduction::Any : Reduction::All;
    const Expr all = f.reduce(which, extent, [&](Expr k) {
      return (body = inner(k, [&] { return boolean(depth - 1); })).expr;
    });
    made = {f.toInteger(all), [=](const Values& v) {
              int64_t count = 0, extentNow = worthOf(extent, v);
              for (int64_t k = 0; k < extentNow; ++k)
                count += body.value(with(v, index, k));
              return static_cast<int64_t>(which == Reduction::Any ? count > 0 : count == extentNow);
            }};
    break;
  }
  case 2: {
    // Of a list that is not empty.
    const Expr more = f.add(extent, f.integer(1));
    const bool isLeast = random() % 2;
    const Expr all = f.reduce(isLeast ? Reduction::Minimum : Reduction::Maximum, more, [&](Expr k) {
      return (body = inner(k, [&] { return integer(depth - 1); })).expr;
    });
    made = {all, [=](const Values& v) {
              int64_t best = body.value(with(v, index, 0));
              for (int64_t k = 1; k < worthOf(more, v); ++k) {
                const int64_t next = body.value(with(v, index, k));
                best = isLeast ? std::min(best, next) : std::max(best, next);
              }
              return best;
            }};
    break;
  }
  default: {
    const Made otherwise = integer(depth - 1);
    const bool isPlace = random() % 2;
    const Expr all = f.last(
        extent,
        [&](Expr k) {
          condition = inner(k, [&] {
            if (!isPlace)
              return boolean(depth - 1);
            const Made place = integer(depth - 1);
            return Made{f.equal(k, place.expr),
                        [=](const Values& v) { return v.at(k) == place.value(v); }};
          });
          return condition.expr;
        },
        [&](Expr k) { return (body = inner(k, [&] { return integer(depth - 1); })).expr; },
        otherwise.expr);
    made = {all, [=](const Values& v) {
              for (int64_t k = worthOf(extent, v) - 1; k >= 0; --k) {
                const Values now = with(v, index, k);
                if (condition.value(now))
                  return body.value(now);
              }
              return otherwise.value(v);
            }};
  }
  }
  --reductions;
  return made;
}

unsigned formulasToTry() {
  const char* wanted = std::getenv("KVOPT_FORMULAS");
  return wanted ? static_cast<unsigned>(std::strtoul(wanted, nullptr, 10)) : 6000;
}

TEST(RandomFormulas, AreWorthTheSameSimplified) {
  const unsigned count = formulasToTry();
  std::unique_ptr<RandomFormulas> formulas;
  for (unsigned turn = 0; turn < count; ++turn) {
    if (turn % 20 == 0)
      formulas = std::make_unique<RandomFormulas>(turn / 20);
    turn % 3 ? formulas->integer(4) : formulas->boolean(4);
    ASSERT_FALSE(HasFailure()) << "formula " << turn;
  }
}

TEST(RandomFormulas, AreWorthTheSameWithOthersInThePlaceOfLeaves) {
  const unsigned count = formulasToTry() / 4;
  std::unique_ptr<RandomFormulas> formulas;
  for (unsigned turn = 0; turn < count; ++turn) {
    if (turn % 20 == 0)
      formulas = std::make_unique<RandomFormulas>(1000000 + turn / 20);
    RandomFormulas& r = *formulas;
    Formulas& f = r.f;
    const RandomFormulas::Made made = turn % 3 ? r.integer(4) : r.boolean(4);
    // Two indices at once, and the elements of one value.
    const Expr i = r.indices[0], j = r.indices[1 + r.random() % 4];
    auto placeFor = [&](Expr index) {
      return f.remainder(r.integer(2).expr, f.arena().operands(index)[0]);
    };
    const Expr atI = placeFor(i), atJ = placeFor(j);
    Substitution substitution(f);
    substitution.set(i, atI);
    substitution.set(j, atJ);
    const bool hasElements = turn % 2;
    if (hasElements)
      substitution.setElements([&](int64_t value, Sort sort, llvm::ArrayRef<Expr> at) {
        return value == r.table ? f.remainder(f.scaled(at[0], 3), f.integer(7))
                                : f.element(value, sort, at);
      });
    const Expr other = substitution(made.expr);
    for (int tries = 0; tries < 6; ++tries) {
      const Values values = r.values();
      Values placed = values;
      placed[i] = r.worth(atI, values);
      placed[j] = r.worth(atJ, values);
      PlainEvaluation plain(f, placed, [&](int64_t value, const std::vector<int64_t>& at) {
        return Worth(hasElements && value == r.table ? PlainEvaluation::remainder(3 * at[0], 7)
                                                     : r.elementOf(value, at, r));
      });
      const Worth expected = plain.worth(made.expr);
      const bool* truth = std::get_if<bool>(&expected);
      ASSERT_EQ(r.worth(other, values), truth ? *truth : std::get<int64_t>(expected))
          << "formula " << turn << ": " << printed(f, made.expr) << "\nwith " << printed(f, atI)
          << " and " << printed(f, atJ) << "\nis " << printed(f, other) << "\nfor "
          << r.shown(values);
    }
  }
}

} // namespace
} // namespace kvopt::meaning
