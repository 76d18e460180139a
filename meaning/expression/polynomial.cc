// Terms are kept ordered by the number of their monomial, which makes equal polynomials one node.
#include "meaning/expression/polynomial.h"

#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace kvopt::meaning {

Polynomials::Polynomials(Arena& arena)
    : arena_(arena), one_(arena.intern(Op::Integer, Sort::Integer, {}, 1)) {}

Expr Polynomials::number(int64_t value) const {
  return arena_.intern(Op::Integer, Sort::Integer, {}, value);
}

std::optional<int64_t> Polynomials::valueOf(Expr expr) const {
  const Node& node = arena_[expr];
  return node.op == Op::Integer ? std::optional(node.value) : std::nullopt;
}

llvm::SmallVector<Term> Polynomials::terms(Expr expr) const {
  llvm::SmallVector<Term> all;
  if (std::optional<int64_t> value = valueOf(expr)) {
    if (*value != 0)
      all.push_back({one_, *value});
  } else if (arena_[expr].op == Op::Polynomial) {
    for (auto [monomial, coefficient] : llvm::zip(arena_.operands(expr), arena_.coefficients(expr)))
      all.push_back({monomial, coefficient});
  } else {
    all.push_back({expr, 1});
  }
  return all;
}

llvm::ArrayRef<Expr> Polynomials::factors(const Expr& monomial) const {
  if (monomial == one_)
    return {};
  if (arena_[monomial].op == Op::Product)
    return arena_.operands(monomial);
  return monomial;
}

llvm::SmallVector<Expr> Polynomials::atoms(Expr expr) const {
  llvm::SmallVector<Expr> all;
  for (const Term& term : terms(expr))
    llvm::append_range(all, factors(term.monomial));
  llvm::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

int64_t Polynomials::constantOf(Expr expr) const {
  for (const Term& term : terms(expr))
    if (term.monomial == one_)
      return term.coefficient;
  return 0;
}

Expr Polynomials::monomialOf(llvm::SmallVectorImpl<Expr>& atoms) {
  llvm::sort(atoms);
  if (atoms.empty())
    return one_;
  return atoms.size() == 1 ? atoms.front() : arena_.intern(Op::Product, Sort::Integer, atoms);
}

Expr Polynomials::ofTerms(llvm::SmallVectorImpl<Term>& terms) {
  llvm::sort(terms, [](const Term& a, const Term& b) { return a.monomial < b.monomial; });
  if (terms.empty())
    return number(0);
  if (terms.size() == 1 && terms.front().monomial == one_)
    return number(terms.front().coefficient);
  if (terms.size() == 1 && terms.front().coefficient == 1)
    return terms.front().monomial;
  llvm::SmallVector<Expr> monomials;
  llvm::SmallVector<int64_t> coefficients;
  for (const Term& term : terms) {
    monomials.push_back(term.monomial);
    coefficients.push_back(term.coefficient);
  }
  return arena_.intern(Op::Polynomial, Sort::Integer, monomials, 0, 0, coefficients);
}

Expr Polynomials::sum(Expr a, Expr b, int64_t by) {
  if (const std::optional<int64_t> x = valueOf(a), y = valueOf(b); x || y) {
    int64_t value = 0;
    if (y == 0 || by == 0)
      return a;
    if (x && y && !__builtin_mul_overflow(*y, by, &value) &&
        !__builtin_add_overflow(*x, value, &value))
      return number(value);
    if (x == 0 && by == 1)
      return b;
  }
  llvm::SmallVector<Term> left = terms(a), right = terms(b), all;
  bool fits = true;
  auto next = left.begin();
  for (Term term : right) {
    fits &= !__builtin_mul_overflow(term.coefficient, by, &term.coefficient);
    for (; next != left.end() && next->monomial < term.monomial; ++next)
      all.push_back(*next);
    if (next != left.end() && next->monomial == term.monomial)
      fits &= !__builtin_add_overflow(term.coefficient, (next++)->coefficient, &term.coefficient);
    if (term.coefficient != 0)
      all.push_back(term);
  }
  all.append(next, left.end());
  if (fits && all.size() <= mostTerms)
    return ofTerms(all);
  const Expr scale = by == 1 ? b : arena_.intern(Op::Wide, Sort::Integer, {b, number(by)}, 0, 1);
  return arena_.intern(Op::Wide, Sort::Integer, {a, scale}, 0, 0);
}

Expr Polynomials::product(Expr a, Expr b) {
  if (const std::optional<int64_t> x = valueOf(a), y = valueOf(b); x || y) {
    int64_t value = 0;
    if (x && y && !__builtin_mul_overflow(*x, *y, &value))
      return number(value);
    if (x == 1 || y == 0)
      return b;
    if (y == 1 || x == 0)
      return a;
  }
  const llvm::SmallVector<Term> left = terms(a), right = terms(b);
  auto isWide = [&] {
    const Expr ordered[] = {std::min(a, b), std::max(a, b)};
    return arena_.intern(Op::Wide, Sort::Integer, ordered, 0, 1);
  };
  if (left.size() * right.size() > 4 * mostTerms)
    return isWide();
  llvm::DenseMap<uint32_t, int64_t> all;
  for (const Term& x : left)
    for (const Term& y : right) {
      llvm::SmallVector<Expr> atoms;
      llvm::append_range(atoms, factors(x.monomial));
      llvm::append_range(atoms, factors(y.monomial));
      int64_t coefficient = 0;
      if (atoms.size() > mostDegree ||
          __builtin_mul_overflow(x.coefficient, y.coefficient, &coefficient))
        return isWide();
      int64_t& total = all[monomialOf(atoms).id()];
      if (__builtin_add_overflow(total, coefficient, &total))
        return isWide();
    }
  llvm::SmallVector<Term> found;
  for (auto [monomial, coefficient] : all)
    if (coefficient != 0)
      found.push_back({Expr(monomial), coefficient});
  return found.size() <= mostTerms ? ofTerms(found) : isWide();
}

namespace {

/// The atoms of one product without those of another; none if it does not have them all.
std::optional<llvm::SmallVector<Expr>> without(llvm::ArrayRef<Expr> atoms,
                                               llvm::ArrayRef<Expr> others) {
  llvm::SmallVector<Expr> rest;
  auto next = others.begin();
  for (Expr atom : atoms)
    if (next != others.end() && *next == atom)
      ++next;
    else
      rest.push_back(atom);
  if (next != others.end())
    return std::nullopt;
  return rest;
}

} // namespace

std::pair<Expr, Expr> Polynomials::divide(Expr a, Expr b) {
  const llvm::SmallVector<Term> divisor = terms(b);
  if (divisor.empty())
    return {number(0), a};
  const Term lead = *std::max_element(divisor.begin(), divisor.end(), [&](auto& x, auto& y) {
    return std::tuple(factors(x.monomial).size(), x.monomial) <
           std::tuple(factors(y.monomial).size(), y.monomial);
  });
  Expr quotient = number(0), rest = a;
  // Each turn removes a term by a multiple of the divisor; a long division needs few of them.
  for (size_t turns = 0; turns < mostTerms; ++turns) {
    Expr step;
    for (const Term& term : terms(rest)) {
      if (lead.coefficient == -1 && term.coefficient == std::numeric_limits<int64_t>::min())
        continue;
      const int64_t times = term.coefficient / lead.coefficient;
      auto left = without(factors(term.monomial), factors(lead.monomial));
      if (times == 0 || !left)
        continue;
      step = scaled(monomialOf(*left), times);
      break;
    }
    if (!step)
      break;
    quotient = sum(quotient, step);
    rest = sum(rest, product(step, b), -1);
    if (arena_[quotient].op == Op::Wide || arena_[rest].op == Op::Wide)
      return {number(0), a};
  }
  return {quotient, rest};
}

std::optional<Expr> Polynomials::quotient(Expr a, Expr b) {
  auto [quotient, rest] = divide(a, b);
  return valueOf(rest) == 0 ? std::optional(quotient) : std::nullopt;
}

Expr Polynomials::commonFactor(Expr a, Expr b) {
  uint64_t number = 0;
  std::optional<llvm::SmallVector<Expr>> common;
  for (Expr each : {a, b})
    for (const Term& term : terms(each)) {
      const auto size = term.coefficient < 0 ? -static_cast<uint64_t>(term.coefficient)
                                             : static_cast<uint64_t>(term.coefficient);
      number = std::gcd(number, size);
      const llvm::ArrayRef<Expr> atoms = factors(term.monomial);
      llvm::SmallVector<Expr> kept;
      if (common)
        std::set_intersection(common->begin(), common->end(), atoms.begin(), atoms.end(),
                              std::back_inserter(kept));
      else
        kept.append(atoms.begin(), atoms.end());
      common = std::move(kept);
    }
  if (!common || number > uint64_t(std::numeric_limits<int64_t>::max()))
    return one_;
  return scaled(monomialOf(*common), static_cast<int64_t>(number));
}

std::optional<Polynomials::Linear> Polynomials::linearIn(Expr expr, Expr atom) {
  llvm::SmallVector<Term> factor, rest;
  for (const Term& term : terms(expr)) {
    const llvm::ArrayRef<Expr> atoms = factors(term.monomial);
    const auto count = llvm::count(atoms, atom);
    if (count > 1)
      return std::nullopt;
    if (count == 0) {
      rest.push_back(term);
    } else {
      llvm::SmallVector<Expr> others = *without(atoms, atom);
      factor.push_back({monomialOf(others), term.coefficient});
    }
  }
  return Linear{ofTerms(factor), ofTerms(rest)};
}

Expr Polynomials::replaced(Expr expr, Expr atom, Expr by) {
  Expr all = number(0);
  for (const Term& term : terms(expr)) {
    const llvm::ArrayRef<Expr> atoms = factors(term.monomial);
    Expr product = number(term.coefficient);
    for (Expr each : atoms)
      product = this->product(product, each == atom ? by : each);
    all = sum(all, product);
  }
  return all;
}

} // namespace kvopt::meaning
