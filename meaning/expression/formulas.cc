// The rules of simplification. A rule that looks at parts with rules again counts its depth.
#include "meaning/expression/formulas.h"

#include "ir/element_type.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace kvopt::meaning {

Formulas::Formulas(Reals reals, size_t mostNodes)
    : reals_(reals), arena_(mostNodes), polynomials_(arena_), facts_(arena_, polynomials_),
      prover_(arena_, polynomials_, names_, facts_) {}

Formulas::Branch::Branch(Formulas& formulas, Expr condition, bool holds)
    : formulas_(formulas), before_(formulas.path_) {
  if (!formulas.booleanOf(condition))
    formulas.path_ = formulas.facts_.with(formulas.path_, condition, holds);
}

Formulas::Branch::Branch(Formulas& formulas, Facts::Path path)
    : formulas_(formulas), before_(formulas.path_) {
  formulas.path_ = path;
}

// Leaves.

Expr Formulas::integer(int64_t value) { return polynomials_.number(value); }

Expr Formulas::boolean(bool value) { return intern(Op::Boolean, Sort::Boolean, {}, value ? 1 : 0); }

Expr Formulas::real(double value) {
  return intern(Op::Real, Sort::Real, {}, std::bit_cast<int64_t>(value));
}

Expr Formulas::symbol(Named named) {
  return intern(Op::Symbol, Sort::Integer, {}, names_.add(std::move(named)));
}

bool Formulas::isOpaque(Expr expr) const {
  const Node& node = arena_[expr];
  return node.op == Op::Symbol && names_[node.value].isOpaque;
}

Expr Formulas::index(llvm::StringRef name, Expr extent) {
  return intern(Op::Index, Sort::Integer, extent, names_.add({name.str(), {}}));
}

int64_t Formulas::named(Named value) { return names_.add(std::move(value)); }

Expr Formulas::element(int64_t value, Sort sort, llvm::ArrayRef<Expr> indices) {
  return intern(Op::Element, sort, indices, value);
}

Expr Formulas::unknown(Sort sort) { return intern(Op::Unknown, sort, {}, ++unknowns_); }

std::optional<bool> Formulas::booleanOf(Expr expr) const {
  const Node& node = arena_[expr];
  return node.op == Op::Boolean ? std::optional(node.value != 0) : std::nullopt;
}

std::optional<double> Formulas::realOf(Expr expr) const {
  const Node& node = arena_[expr];
  return node.op == Op::Real ? std::optional(std::bit_cast<double>(node.value)) : std::nullopt;
}

// Quotients and remainders.

Formulas::Division Formulas::divided(Expr a, Expr b, bool& isDone) {
  Division division;
  std::tie(division.quotient, division.rest) = polynomials_.divide(a, b);
  const Expr rest = division.rest;
  isDone = prover_.isBelow(rest, b, path_);
  if (isDone)
    return division;
  // From -b to -1: one less.
  if (prover_.isPositive(scaled(rest, -1), path_) && isProvedNonNegative(add(rest, b))) {
    division.quotient = add(division.quotient, integer(-1));
    division.rest = add(rest, b);
    isDone = true;
  }
  return division;
}

bool Formulas::findFactor(Division& division, Expr b) {
  const Expr rest = division.rest;
  llvm::SmallVector<Expr, 4> tried;
  for (const Term& term : polynomials_.terms(rest)) {
    llvm::SmallVector<Term> one{term};
    const Expr factor = polynomials_.commonFactor(polynomials_.ofTerms(one), b);
    if (integerOf(factor) == 1 || llvm::is_contained(tried, factor))
      continue;
    tried.push_back(factor);
    Expr upper = integer(0), lower = integer(0);
    for (const Term& each : polynomials_.terms(rest)) {
      llvm::SmallVector<Term> single{each};
      const Expr part = polynomials_.ofTerms(single);
      if (std::optional<Expr> times = polynomials_.quotient(part, factor))
        upper = add(upper, *times);
      else
        lower = add(lower, part);
    }
    if (!prover_.isBelow(lower, factor, path_))
      continue;
    division.factor = factor;
    division.upper = upper;
    division.lower = lower;
    return true;
  }
  return false;
}

Expr Formulas::quotient(Expr a, Expr b) {
  const std::optional<int64_t> x = integerOf(a), y = integerOf(b);
  if (y == 1)
    return a;
  if (y == 0 || x == 0)
    return integer(0);
  if (x && y && *y != -1)
    return integer(*x / *y - (*x % *y != 0 && (*x < 0) != (*y < 0) ? 1 : 0));
  if (y == -1)
    return scaled(a, -1);
  if (depth_ >= mostDepth || !prover_.isPositive(b, path_))
    return intern(Op::Quotient, Sort::Integer, {a, b});
  ++depth_;
  auto leave = llvm::make_scope_exit([&] { --depth_; });
  bool isDone = false;
  Division division = divided(a, b, isDone);
  if (isDone)
    return division.quotient;
  const Expr rest = division.rest;
  if (findFactor(division, b))
    return add(division.quotient,
               quotient(division.upper, *polynomials_.quotient(b, division.factor)));
  const llvm::ArrayRef<Expr> parts = arena_.operands(rest);
  // (a/b)/c is a/(b*c).
  if (arena_[rest].op == Op::Quotient && prover_.isPositive(parts[1], path_))
    return add(division.quotient, quotient(parts[0], multiply(parts[1], b)));
  if (arena_[rest].op == Op::Select)
    return add(division.quotient, select(
                                      parts[0], [&] { return quotient(parts[1], b); },
                                      [&] { return quotient(parts[2], b); }));
  return add(division.quotient, intern(Op::Quotient, Sort::Integer, {rest, b}));
}

Expr Formulas::remainder(Expr a, Expr b) {
  const std::optional<int64_t> x = integerOf(a), y = integerOf(b);
  if (y == 1 || y == -1 || y == 0 || x == 0)
    return integer(0);
  if (x && y)
    return integer(*x % *y + (*x % *y != 0 && (*x < 0) != (*y < 0) ? *y : 0));
  if (depth_ >= mostDepth || !prover_.isPositive(b, path_))
    return intern(Op::Remainder, Sort::Integer, {a, b});
  ++depth_;
  auto leave = llvm::make_scope_exit([&] { --depth_; });
  bool isDone = false;
  Division division = divided(a, b, isDone);
  const Expr rest = division.rest;
  if (isDone)
    return rest;
  if (findFactor(division, b))
    return add(multiply(division.factor,
                        remainder(division.upper, *polynomials_.quotient(b, division.factor))),
               division.lower);
  // (a % (b*c)) % b is a % b.
  if (arena_[rest].op == Op::Remainder) {
    const Expr first = arena_.operands(rest)[0], by = arena_.operands(rest)[1];
    if (prover_.isPositive(by, path_) && polynomials_.quotient(by, b))
      return remainder(first, b);
  }
  return intern(Op::Remainder, Sort::Integer, {rest, b});
}

Expr Formulas::extreme(Op op, Expr a, Expr b) {
  if (const std::optional<int64_t> x = integerOf(a), y = integerOf(b); x && y)
    return (*x < *y) == (op == Op::Minimum) ? a : b;
  const bool isLeast = op == Op::Minimum;
  llvm::SmallVector<Expr> parts, kept;
  for (Expr each : {a, b})
    if (arena_[each].op == op)
      llvm::append_range(parts, arena_.operands(each));
    else
      parts.push_back(each);
  auto isBeyond = [&](Expr x, Expr y) { // y makes x unnecessary
    return isProvedNonNegative(isLeast ? subtract(x, y) : subtract(y, x));
  };
  for (Expr part : parts) {
    if (llvm::any_of(kept, [&](Expr other) { return isBeyond(part, other); }))
      continue;
    llvm::erase_if(kept, [&](Expr other) { return isBeyond(other, part); });
    kept.push_back(part);
  }
  llvm::sort(kept);
  return kept.size() == 1 ? kept.front() : intern(op, Sort::Integer, kept);
}

namespace {

bool isSigned(ir::ElementType type) {
  using Type = ir::ElementType;
  return type == Type::Int4 || type == Type::Int8 || type == Type::Int16 || type == Type::Int32 ||
         type == Type::Int64;
}

} // namespace

Expr Formulas::wrapped(Expr a, ir::ElementType type) {
  const unsigned bits = ir::bitWidth(type).value_or(64);
  const std::optional<int64_t> number = integerOf(a);
  if (bits < 64) {
    const int64_t count = int64_t(1) << bits;
    const int64_t low = isSigned(type) ? -(count / 2) : 0;
    if (isProvedNonNegative(add(a, integer(-low))) &&
        isProvedNonNegative(subtract(integer(low + count - 1), a)))
      return a;
    if (number) {
      const uint64_t rest = (static_cast<uint64_t>(*number) - static_cast<uint64_t>(low)) &
                            static_cast<uint64_t>(count - 1);
      return integer(low + static_cast<int64_t>(rest));
    }
  } else if (number && (type == ir::ElementType::Int64 || *number >= 0)) {
    return a;
  } else {
    const Range range = prover_.rangeOf(a);
    if (range.high != Range::noHigh && range.low != Range::noLow &&
        (type == ir::ElementType::Int64 || range.low >= 0))
      return a;
  }
  return intern(Op::Wrapped, Sort::Integer, a, 0, static_cast<unsigned>(type));
}

// Booleans.

std::optional<bool> Formulas::decided(Expr boolean) {
  if (std::optional<bool> value = booleanOf(boolean))
    return value;
  if (std::optional<bool> truth = facts_.truthOf(path_, boolean))
    return truth;
  if (arena_[boolean].op != Op::NonNegative)
    return std::nullopt;
  const Expr integer = arena_.operands(boolean)[0];
  if (isProvedNonNegative(integer))
    return true;
  if (isProvedNonNegative(polynomials_.sum(polynomials_.number(-1), integer, -1)))
    return false;
  return std::nullopt;
}

bool Formulas::isTableOfNumbers(Expr expr) const {
  for (unsigned depth = 0; depth < 16; ++depth) {
    const Node& node = arena_[expr];
    if (node.op == Op::Integer || node.op == Op::Real)
      return true;
    if (node.op != Op::Select)
      return false;
    const Op first = arena_[node.operands[1]].op;
    if (first != Op::Integer && first != Op::Real)
      return false;
    expr = node.operands[2];
  }
  return false;
}

Expr Formulas::lifted(Expr integer, llvm::function_ref<Expr(Expr)> f) {
  if (depth_ >= mostDepth)
    return Expr();
  const bool isShort = polynomials_.terms(integer).size() <= 4;
  for (Expr atom : polynomials_.atoms(integer)) {
    const Op op = arena_[atom].op;
    if (op != Op::Select && op != Op::Minimum && op != Op::Maximum)
      continue;
    const auto linear = polynomials_.linearIn(integer, atom);
    if (!linear)
      continue;
    const llvm::ArrayRef<Expr> parts = arena_.operands(atom);
    auto at = [&](Expr part) {
      return f(polynomials_.sum(linear->rest, polynomials_.product(linear->factor, part)));
    };
    ++depth_;
    auto leave = llvm::make_scope_exit([&] { --depth_; });
    if (op == Op::Select) {
      if (isShort || isTableOfNumbers(atom))
        return select(
            parts[0], [&] { return at(parts[1]); }, [&] { return at(parts[2]); });
      continue;
    }
    // The least of some is at least 0 if all are.
    const std::optional<int64_t> factor = integerOf(linear->factor);
    if (!factor)
      continue;
    llvm::SmallVector<Expr> each;
    for (Expr part : parts)
      each.push_back(at(part));
    return combined((op == Op::Minimum) == (*factor > 0) ? Op::And : Op::Or, each);
  }
  return Expr();
}

namespace {

/// The greatest common divisor of the coefficients of atoms.
uint64_t divisorOf(llvm::ArrayRef<Term> terms, Expr one) {
  uint64_t divisor = 0;
  for (const Term& term : terms)
    if (term.monomial != one)
      divisor = std::gcd(divisor, term.coefficient < 0 ? -static_cast<uint64_t>(term.coefficient)
                                                       : static_cast<uint64_t>(term.coefficient));
  return divisor;
}

} // namespace

Expr Formulas::nonNegative(Expr integer) {
  if (std::optional<int64_t> value = integerOf(integer))
    return boolean(*value >= 0);
  // 3*x - 5 >= 0 is x - 2 >= 0.
  const Expr one = this->integer(1);
  llvm::SmallVector<Term> terms = polynomials_.terms(integer);
  if (const uint64_t divisor = divisorOf(terms, one); divisor > 1 && divisor < (1ULL << 62)) {
    const auto by = static_cast<int64_t>(divisor);
    for (Term& term : terms) {
      const bool isRoundedDown = term.monomial == one && term.coefficient % by < 0;
      term.coefficient = term.coefficient / by - (isRoundedDown ? 1 : 0);
    }
    llvm::erase_if(terms, [](const Term& term) { return term.coefficient == 0; });
    integer = polynomials_.ofTerms(terms);
  }
  const Expr plain = intern(Op::NonNegative, Sort::Boolean, integer);
  if (std::optional<bool> truth = decided(plain))
    return boolean(*truth);
  if (Expr parts = lifted(integer, [&](Expr part) { return nonNegative(part); }))
    return parts;
  return plain;
}

Expr Formulas::isZero(Expr integer) {
  if (std::optional<int64_t> value = integerOf(integer))
    return boolean(*value == 0);
  const Expr one = this->integer(1);
  llvm::SmallVector<Term> terms = polynomials_.terms(integer);
  auto by = static_cast<int64_t>(divisorOf(terms, one));
  if (by <= 0 || llvm::any_of(terms, [](const Term& term) {
        return term.coefficient == std::numeric_limits<int64_t>::min();
      }))
    return intern(Op::Zero, Sort::Boolean, integer);
  if (by > 1 && polynomials_.constantOf(integer) % by != 0)
    return boolean(false);
  // One of p = 0 and -p = 0.
  if (terms.back().coefficient < 0)
    by = -by;
  for (Term& term : terms)
    term.coefficient /= by;
  integer = polynomials_.ofTerms(terms);
  const Expr plain = intern(Op::Zero, Sort::Boolean, integer);
  if (std::optional<bool> truth = facts_.truthOf(path_, plain))
    return boolean(*truth);
  const Expr isHigh = nonNegative(integer), isLow = nonNegative(scaled(integer, -1));
  if (booleanOf(isHigh) == false || booleanOf(isLow) == false)
    return boolean(false);
  if (booleanOf(isHigh) == true)
    return isLow;
  if (booleanOf(isLow) == true)
    return isHigh;
  for (Expr atom : polynomials_.atoms(integer))
    if (arena_[atom].op == Op::Select && isTableOfNumbers(atom) && depth_ < mostDepth)
      if (const auto linear = polynomials_.linearIn(integer, atom)) {
        const llvm::ArrayRef<Expr> parts = arena_.operands(atom);
        ++depth_;
        auto leave = llvm::make_scope_exit([&] { --depth_; });
        auto at = [&](Expr part) {
          return isZero(polynomials_.sum(linear->rest, polynomials_.product(linear->factor, part)));
        };
        return select(
            parts[0], [&] { return at(parts[1]); }, [&] { return at(parts[2]); });
      }
  return plain;
}

Expr Formulas::negation(Expr expr) {
  if (std::optional<bool> value = booleanOf(expr))
    return boolean(!*value);
  const Op op = arena_[expr].op;
  const llvm::ArrayRef<Expr> operands = arena_.operands(expr);
  if (op == Op::Not)
    return operands[0];
  if (op == Op::NonNegative)
    return nonNegative(polynomials_.sum(integer(-1), operands[0], -1));
  if ((op == Op::And || op == Op::Or) && depth_ < mostDepth) {
    ++depth_;
    auto leave = llvm::make_scope_exit([&] { --depth_; });
    llvm::SmallVector<Expr> others;
    for (Expr operand : operands)
      others.push_back(negation(operand));
    return combined(op == Op::And ? Op::Or : Op::And, others);
  }
  return intern(Op::Not, Sort::Boolean, expr);
}

Expr Formulas::combined(Op op, llvm::ArrayRef<Expr> booleans) {
  const bool unit = op == Op::And;
  const Op other = op == Op::And ? Op::Or : Op::And;
  llvm::SmallVector<Expr> parts;
  for (Expr each : booleans)
    if (arena_[each].op == op)
      llvm::append_range(parts, arena_.operands(each));
    else
      parts.push_back(each);
  llvm::SmallVector<Expr> kept;
  for (Expr part : parts) {
    const std::optional<bool> truth = decided(part);
    if (truth == !unit)
      return boolean(!unit);
    if (!truth)
      kept.push_back(part);
  }
  llvm::sort(kept);
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  // x and (x or y) is x.
  const llvm::SmallVector<Expr> all = kept;
  llvm::erase_if(kept, [&](Expr part) {
    return arena_[part].op == other && llvm::any_of(arena_.operands(part), [&](Expr inner) {
             return llvm::is_contained(all, inner);
           });
  });
  // Two that exclude each other, or of which one is for nothing: p >= 0 beside p + n >= 0 or n - p
  // >= 0.
  llvm::SmallVector<bool> isSpare(kept.size(), false);
  for (size_t i = 0; i < kept.size(); ++i) {
    const Expr opposite = arena_[kept[i]].op == Op::Not ? arena_.operands(kept[i])[0] : Expr();
    if (opposite && llvm::is_contained(kept, opposite))
      return boolean(!unit);
    if (arena_[kept[i]].op != Op::NonNegative)
      continue;
    for (size_t j = 0; j < kept.size(); ++j) {
      if (i == j || arena_[kept[j]].op != Op::NonNegative)
        continue;
      const Expr p = arena_.operands(kept[i])[0], q = arena_.operands(kept[j])[0];
      const std::optional<int64_t> total = integerOf(add(p, q)), more = integerOf(subtract(q, p));
      if (total && (op == Op::And ? *total < 0 : *total >= -1))
        return boolean(!unit);
      if (more && (op == Op::And ? *more < 0 : *more > 0))
        isSpare[i] = true;
    }
  }
  llvm::SmallVector<Expr> rest;
  for (size_t i = 0; i < kept.size(); ++i)
    if (!isSpare[i])
      rest.push_back(kept[i]);
  if (rest.empty())
    return boolean(unit);
  return rest.size() == 1 ? rest.front() : intern(op, Sort::Boolean, rest);
}

Expr Formulas::agreement(Expr a, Expr b) {
  return disjunction({conjunction({a, b}), conjunction({negation(a), negation(b)})});
}

// Choices.

Expr Formulas::select(Expr condition, Expr a, Expr b) {
  return select(
      condition, [&] { return a; }, [&] { return b; });
}

Expr Formulas::select(Expr condition, llvm::function_ref<Expr()> a, llvm::function_ref<Expr()> b) {
  if (std::optional<bool> truth = decided(condition))
    return *truth ? a() : b();
  Expr first, second;
  {
    Branch branch(*this, condition);
    first = a();
  }
  {
    Branch branch(*this, condition, false);
    second = b();
  }
  return chosen(condition, first, second);
}

Expr Formulas::chosen(Expr condition, Expr a, Expr b) {
  if (a == b)
    return a;
  if (arena_[condition].op == Op::Not)
    return chosen(arena_.operands(condition)[0], b, a);
  if (sortOf(a) == Sort::Boolean)
    return disjunction({conjunction({condition, a}), conjunction({negation(condition), b})});
  auto part = [&](Expr expr, unsigned operand) { return arena_.operands(expr)[operand]; };
  if (arena_[a].op == Op::Select) {
    if (part(a, 2) == b)
      return chosen(conjunction({condition, part(a, 0)}), part(a, 1), b);
    if (part(a, 1) == b)
      return chosen(conjunction({condition, negation(part(a, 0))}), part(a, 2), b);
  }
  if (arena_[b].op == Op::Select) {
    if (part(b, 1) == a)
      return chosen(disjunction({condition, part(b, 0)}), a, part(b, 2));
    if (part(b, 2) == a)
      return chosen(disjunction({condition, negation(part(b, 0))}), a, part(b, 1));
  }
  return intern(Op::Select, sortOf(a), {condition, a, b});
}

// Reals.

namespace {

/// The sum or product, if a double holds it exactly.
std::optional<double> exactly(Function function, double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b))
    return std::nullopt;
  if (function == Function::Add) {
    const double sum = a + b, back = sum - a;
    if ((a - (sum - back)) + (b - back) == 0 && std::isfinite(sum))
      return sum;
  } else if (function == Function::Multiply) {
    const double product = a * b;
    if (std::isfinite(product) && std::fma(a, b, -product) == 0 &&
        (product != 0 || a == 0 || b == 0))
      return product;
  }
  return std::nullopt;
}

bool isWhole(double value) { return std::trunc(value) == value && std::abs(value) < 0x1p52; }

} // namespace

std::optional<Formulas::Ratio> Formulas::ratioOf(Expr real) {
  const Node& node = arena_[real];
  if (node.op == Op::FromInteger)
    return Ratio{arena_.operands(real)[0], 1};
  if (std::optional<double> value = realOf(real)) {
    for (int64_t denominator = 1; denominator <= 4096; denominator *= 2)
      if (isWhole(*value * static_cast<double>(denominator)))
        return Ratio{integer(static_cast<int64_t>(*value * static_cast<double>(denominator))),
                     denominator};
    return std::nullopt;
  }
  if (node.op != Op::Function || arena_.operands(real).size() != 2 || depth_ >= mostDepth)
    return std::nullopt;
  ++depth_;
  auto leave = llvm::make_scope_exit([&] { --depth_; });
  const auto function = static_cast<Function>(node.detail);
  if (function != Function::Add && function != Function::Multiply && function != Function::Divide)
    return std::nullopt;
  const Expr a = arena_.operands(real)[0], b = arena_.operands(real)[1];
  const std::optional<Ratio> x = ratioOf(a), y = ratioOf(b);
  if (!x || !y || x->denominator > 4096 || y->denominator > 4096)
    return std::nullopt;
  if (function == Function::Multiply)
    return Ratio{multiply(x->numerator, y->numerator), x->denominator * y->denominator};
  if (function == Function::Add)
    return Ratio{add(scaled(x->numerator, y->denominator), scaled(y->numerator, x->denominator)),
                 x->denominator * y->denominator};
  const std::optional<int64_t> divisor = integerOf(y->numerator);
  if (!divisor || *divisor <= 0 || *divisor > 4096 || y->denominator != 1)
    return std::nullopt;
  return Ratio{x->numerator, x->denominator * *divisor};
}

Expr Formulas::toReal(Expr expr) {
  if (sortOf(expr) == Sort::Real)
    return expr;
  if (sortOf(expr) == Sort::Boolean)
    return select(expr, real(1), real(0));
  if (std::optional<int64_t> value = integerOf(expr); value && isWhole(static_cast<double>(*value)))
    return real(static_cast<double>(*value));
  // What is whole already: floor (x).
  if (reals_ == Reals::OverReals && arena_[expr].op == Op::Truncated) {
    const Expr from = arena_.operands(expr)[0];
    const auto function = static_cast<Function>(arena_[from].detail);
    if (arena_[from].op == Op::Function &&
        (function == Function::Floor || function == Function::Ceiling ||
         function == Function::Round))
      return from;
  }
  if (arena_[expr].op == Op::Select) {
    const llvm::ArrayRef<Expr> parts = arena_.operands(expr);
    if (depth_ < mostDepth) {
      ++depth_;
      auto leave = llvm::make_scope_exit([&] { --depth_; });
      return select(
          parts[0], [&] { return toReal(parts[1]); }, [&] { return toReal(parts[2]); });
    }
  }
  return intern(Op::FromInteger, Sort::Real, expr);
}

Expr Formulas::toInteger(Expr expr) {
  if (sortOf(expr) == Sort::Integer)
    return expr;
  if (sortOf(expr) == Sort::Boolean)
    return select(expr, integer(1), integer(0));
  if (std::optional<double> value = realOf(expr); value && std::abs(*value) < 0x1p62)
    return integer(static_cast<int64_t>(*value));
  if (reals_ == Reals::OverReals && depth_ < mostDepth) {
    ++depth_;
    auto leave = llvm::make_scope_exit([&] { --depth_; });
    if (arena_[expr].op == Op::Select) {
      const llvm::ArrayRef<Expr> parts = arena_.operands(expr);
      return select(
          parts[0], [&] { return toInteger(parts[1]); }, [&] { return toInteger(parts[2]); });
    }
    if (const std::optional<Ratio> ratio = ratioOf(expr)) {
      const Expr divisor = integer(ratio->denominator);
      return select(
          nonNegative(ratio->numerator), [&] { return quotient(ratio->numerator, divisor); },
          [&] { return quotientUp(ratio->numerator, divisor); });
    }
  }
  return intern(Op::Truncated, Sort::Integer, expr);
}

Expr Formulas::simpleFunction(Function function, llvm::ArrayRef<Expr> reals) {
  const Expr a = reals[0], b = reals.size() > 1 ? reals[1] : Expr();
  const std::optional<double> x = realOf(a), y = b ? realOf(b) : std::nullopt;
  switch (function) {
  case Function::Add:
  case Function::Multiply: {
    if (x && y)
      if (std::optional<double> value = exactly(function, *x, *y))
        return real(*value);
    const double unit = function == Function::Add ? 0 : 1;
    if (x == unit)
      return b;
    if (y == unit)
      return a;
    if (function == Function::Multiply && (x == 0.0 || y == 0.0))
      return real(0);
    auto whole = [&](Expr expr) -> std::optional<Expr> {
      if (arena_[expr].op == Op::FromInteger)
        return arena_.operands(expr)[0];
      const std::optional<double> value = realOf(expr);
      return value && isWhole(*value) ? std::optional(integer(static_cast<int64_t>(*value)))
                                      : std::nullopt;
    };
    const std::optional<Expr> p = whole(a), q = whole(b);
    if (p && q)
      return toReal(function == Function::Add ? add(*p, *q) : multiply(*p, *q));
    return Expr();
  }
  case Function::Divide:
    // By a power of two.
    if (int exponent = 0; y && std::isfinite(*y) && std::abs(std::frexp(*y, &exponent)) == 0.5)
      return this->function(Function::Multiply, {a, real(1 / *y)});
    return Expr();
  case Function::Floor:
  case Function::Ceiling:
    if (const std::optional<Ratio> ratio = ratioOf(a)) {
      const Expr divisor = integer(ratio->denominator);
      return toReal(function == Function::Floor ? quotient(ratio->numerator, divisor)
                                                : quotientUp(ratio->numerator, divisor));
    }
    return Expr();
  case Function::Round:
    return arena_[a].op == Op::FromInteger ? a : Expr();
  default:
    return Expr();
  }
}

Expr Formulas::function(Function function, llvm::ArrayRef<Expr> reals) {
  if (reals_ == Reals::OverReals && depth_ < mostDepth) {
    ++depth_;
    auto leave = llvm::make_scope_exit([&] { --depth_; });
    if (Expr simple = simpleFunction(function, reals))
      return simple;
  }
  llvm::SmallVector<Expr> operands(reals.begin(), reals.end());
  // In either order these give the same bits.
  if (function == Function::Add || function == Function::Multiply)
    llvm::sort(operands);
  return intern(Op::Function, Sort::Real, operands, 0, static_cast<unsigned>(function));
}

Expr Formulas::compared(Comparison comparison, Expr a, Expr b) {
  const std::optional<double> x = realOf(a), y = realOf(b);
  if (x && y)
    return boolean(comparison == Comparison::Less          ? *x < *y
                   : comparison == Comparison::LessOrEqual ? *x <= *y
                                                           : *x == *y);
  if (depth_ < mostDepth) {
    ++depth_;
    auto leave = llvm::make_scope_exit([&] { --depth_; });
    for (Expr choice : {a, b})
      if (arena_[choice].op == Op::Select && isTableOfNumbers(choice) &&
          (choice == a ? y : x).has_value()) {
        const llvm::ArrayRef<Expr> parts = arena_.operands(choice);
        auto at = [&](Expr part) {
          return compared(comparison, choice == a ? part : a, choice == a ? b : part);
        };
        return select(
            parts[0], [&] { return at(parts[1]); }, [&] { return at(parts[2]); });
      }
    const std::optional<Ratio> p = reals_ == Reals::OverReals ? ratioOf(a) : std::nullopt,
                               q = reals_ == Reals::OverReals ? ratioOf(b) : std::nullopt;
    if (p && q) {
      const Expr left = scaled(p->numerator, q->denominator),
                 right = scaled(q->numerator, p->denominator);
      return comparison == Comparison::Equal  ? equal(left, right)
             : comparison == Comparison::Less ? below(left, right)
                                              : atMost(left, right);
    }
  }
  llvm::SmallVector<Expr> operands{a, b};
  if (comparison == Comparison::Equal)
    llvm::sort(operands);
  const Expr plain =
      intern(Op::Compared, Sort::Boolean, operands, 0, static_cast<unsigned>(comparison));
  if (std::optional<bool> truth = decided(plain))
    return boolean(*truth);
  return plain;
}

// Reductions.

Expr Formulas::reduce(Reduction reduction, Expr extent, llvm::function_ref<Expr(Expr)> body) {
  const std::optional<int64_t> count = integerOf(extent);
  if (count == 1)
    return body(integer(0));
  const Expr index = this->index("k", extent);
  Expr each;
  {
    Branch branch(*this, nonNegative(add(extent, integer(-1))));
    each = body(index);
    if (sortOf(each) == Sort::Boolean && reduction == Reduction::Sum)
      each = select(each, integer(1), integer(0));
  }
  return closed(reduction, index, extent, each);
}

Expr Formulas::closed(Reduction reduction, Expr index, Expr extent, Expr body) {
  const Sort sort = sortOf(body);
  const std::optional<int64_t> count = integerOf(extent);
  const bool isEmpty = count && *count <= 0;
  switch (reduction) {
  case Reduction::Any:
  case Reduction::All: {
    if (isEmpty)
      return boolean(reduction == Reduction::All);
    if (arena_.reads(body, index) && !booleanOf(body))
      break;
    const Expr hasAny = nonNegative(add(extent, integer(-1)));
    return reduction == Reduction::Any ? conjunction({hasAny, body})
                                       : disjunction({negation(hasAny), body});
  }
  case Reduction::Sum:
    if (sort != Sort::Integer)
      break;
    if (isEmpty)
      return integer(0);
    if (!arena_.reads(body, index))
      return multiply(maximum(extent, integer(0)), body);
    break;
  case Reduction::Product:
    if (isEmpty && sort == Sort::Integer)
      return integer(1);
    break;
  case Reduction::Minimum:
  case Reduction::Maximum:
    if (!arena_.reads(body, index) && prover_.isPositive(extent, path_))
      return body;
    break;
  }
  const int64_t level = arena_[body].level + 1;
  const Expr bound = intern(Op::Bound, Sort::Integer, {}, level);
  return intern(Op::Reduce, sort, {extent, renamed(body, index, bound)}, level,
                static_cast<unsigned>(reduction));
}

Expr Formulas::last(Expr extent, llvm::function_ref<Expr(Expr)> condition,
                    llvm::function_ref<Expr(Expr)> body, Expr otherwise) {
  const Expr index = this->index("u", extent);
  Expr holds, value;
  {
    Branch branch(*this, nonNegative(add(extent, integer(-1))));
    holds = condition(index);
    Branch where(*this, holds);
    value = body(index);
  }
  return closedLast(index, extent, holds, value, otherwise);
}

/// Where the condition says which index it is, or does not read it.
Expr Formulas::solved(Expr index, Expr extent, Expr condition, Expr body, Expr otherwise) {
  Expr place;
  llvm::SmallVector<Expr> conditions;
  if (arena_[condition].op == Op::And)
    llvm::append_range(conditions, arena_.operands(condition));
  else
    conditions.push_back(condition);
  for (Expr part : conditions) {
    if (arena_[part].op != Op::Zero)
      continue;
    const auto linear = polynomials_.linearIn(arena_.operands(part)[0], index);
    const std::optional<int64_t> factor = linear ? integerOf(linear->factor) : std::nullopt;
    if ((factor == 1 || factor == -1) && !arena_.reads(linear->rest, index)) {
      place = scaled(linear->rest, -*factor);
      break;
    }
  }
  if (!place) {
    if (arena_.reads(condition, index))
      return Expr();
    place = add(extent, integer(-1));
  }
  auto at = [&](Expr expr) {
    Substitution substitution(*this);
    substitution.set(index, place);
    return substitution(expr);
  };
  const Expr isThere = conjunction({nonNegative(place), below(place, extent), at(condition)});
  return select(
      isThere, [&] { return at(body); }, [&] { return otherwise; });
}

Expr Formulas::closedLast(Expr index, Expr extent, Expr condition, Expr body, Expr otherwise) {
  const std::optional<int64_t> count = integerOf(extent);
  if (booleanOf(condition) == false || (count && *count <= 0))
    return otherwise;
  if (Expr simple = solved(index, extent, condition, body, otherwise))
    return simple;
  const int64_t level = std::max(arena_[body].level, arena_[condition].level) + 1;
  const Expr bound = intern(Op::Bound, Sort::Integer, {}, level);
  return intern(Op::Last, sortOf(body),
                {extent, renamed(body, index, bound), renamed(condition, index, bound), otherwise},
                level);
}

Expr Formulas::opened(Expr reduction, unsigned operand, Expr index) {
  const Expr bound = intern(Op::Bound, Sort::Integer, {}, arena_[reduction].value);
  return renamed(arena_.operands(reduction)[operand], bound, index);
}

Expr Formulas::reordered(Expr original, llvm::MutableArrayRef<Expr> operands) {
  const Node node = arena_[original];
  switch (node.op) {
  case Op::Product: {
    Expr all = integer(1);
    for (Expr operand : operands)
      all = multiply(all, operand);
    return all;
  }
  case Op::Polynomial: {
    Expr all = integer(0);
    for (auto [operand, coefficient] : llvm::zip(operands, arena_.coefficients(original)))
      all = polynomials_.sum(all, operand, coefficient);
    return all;
  }
  case Op::Function:
    if (static_cast<Function>(node.detail) == Function::Add ||
        static_cast<Function>(node.detail) == Function::Multiply)
      llvm::sort(operands);
    break;
  case Op::Compared:
    if (static_cast<Comparison>(node.detail) == Comparison::Equal)
      llvm::sort(operands);
    break;
  case Op::Minimum:
  case Op::Maximum:
  case Op::And:
  case Op::Or:
    llvm::sort(operands);
    break;
  default:
    break;
  }
  return intern(node.op, node.sort, operands, node.value, node.detail);
}

Expr Formulas::renamed(Expr expr, Expr from, Expr to) {
  llvm::DenseMap<uint32_t, Expr> made;
  made[from.id()] = to;
  auto isSame = [&](Expr part) { return !arena_.reads(part, from); };
  llvm::SmallVector<Expr> open{expr};
  while (!open.empty()) {
    const Expr next = open.back();
    if (isSame(next) || made.count(next.id())) {
      open.pop_back();
      continue;
    }
    const llvm::ArrayRef<Expr> operands = arena_.operands(next);
    const size_t before = open.size();
    for (Expr operand : operands)
      if (!isSame(operand) && !made.count(operand.id()))
        open.push_back(operand);
    if (open.size() > before)
      continue;
    llvm::SmallVector<Expr> others;
    for (Expr operand : operands)
      others.push_back(isSame(operand) ? operand : made[operand.id()]);
    made[next.id()] = reordered(next, others);
    open.pop_back();
  }
  return isSame(expr) ? expr : made[expr.id()];
}

Expr Formulas::remade(Expr original, llvm::ArrayRef<Expr> operands) {
  const Node node = arena_[original];
  auto all = [&](Expr first, llvm::function_ref<Expr(Expr, Expr)> combine) {
    for (Expr operand : operands.drop_front())
      first = combine(first, operand);
    return first;
  };
  switch (node.op) {
  case Op::Product:
    return all(operands[0], [&](Expr a, Expr b) { return multiply(a, b); });
  case Op::Polynomial: {
    Expr sum = integer(0);
    for (auto [operand, coefficient] : llvm::zip(operands, arena_.coefficients(original)))
      sum = polynomials_.sum(sum, operand, coefficient);
    return sum;
  }
  case Op::Wide:
    return node.detail == 0 ? add(operands[0], operands[1]) : multiply(operands[0], operands[1]);
  case Op::Quotient:
    return quotient(operands[0], operands[1]);
  case Op::Remainder:
    return remainder(operands[0], operands[1]);
  case Op::Minimum:
  case Op::Maximum:
    return all(operands[0], [&](Expr a, Expr b) { return extreme(node.op, a, b); });
  case Op::Truncated:
    return toInteger(operands[0]);
  case Op::Wrapped:
    return wrapped(operands[0], static_cast<ir::ElementType>(node.detail));
  case Op::NonNegative:
    return nonNegative(operands[0]);
  case Op::Zero:
    return isZero(operands[0]);
  case Op::Compared:
    return compared(static_cast<Comparison>(node.detail), operands[0], operands[1]);
  case Op::Not:
    return negation(operands[0]);
  case Op::And:
  case Op::Or:
    return combined(node.op, operands);
  case Op::FromInteger:
    return toReal(operands[0]);
  case Op::Function:
    return function(static_cast<Function>(node.detail), operands);
  case Op::Element:
    return element(node.value, node.sort, operands);
  case Op::Select:
    return select(operands[0], operands[1], operands[2]);
  default:
    return original;
  }
}

} // namespace kvopt::meaning
