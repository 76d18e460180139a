// Arithmetic, comparison and division of canonical integer polynomials.
#include "ir/dim.h"

#include "ir/dim_names.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace kvopt {
namespace {

// Holds any sum of 4096 int64_t.
__extension__ using Wide = __int128;

// Names are shared, so that copying a monomial never copies text.
class Symbol {
public:
  explicit Symbol(llvm::StringRef name) : name_(std::make_shared<const std::string>(name.str())) {}
  const std::string& name() const { return *name_; }
  friend bool operator==(const Symbol& a, const Symbol& b) {
    return a.name_ == b.name_ || *a.name_ == *b.name_;
  }
  friend bool operator<(const Symbol& a, const Symbol& b) {
    return a.name_ != b.name_ && *a.name_ < *b.name_;
  }

private:
  std::shared_ptr<const std::string> name_;
};

// A product of symbols in byte order; a power is a repetition.
using Monomial = llvm::SmallVector<Symbol, 2>;

// Graded lexicographic: higher degree first. Multiplying both sides by a monomial keeps the order,
// which the division needs.
bool precedes(const Monomial& a, const Monomial& b) {
  if (a.size() != b.size())
    return a.size() > b.size();
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

struct Term {
  int64_t coefficient;
  Monomial monomial;
  friend bool operator==(const Term& a, const Term& b) {
    return a.coefficient == b.coefficient && a.monomial == b.monomial;
  }
};
using Terms = std::vector<Term>;

bool fits(Wide value) {
  return value >= std::numeric_limits<int64_t>::min() &&
         value <= std::numeric_limits<int64_t>::max();
}

uint64_t magnitude(int64_t value) {
  return value < 0 ? uint64_t(0) - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

int64_t constantTerm(const Terms& terms) {
  return !terms.empty() && terms.back().monomial.empty() ? terms.back().coefficient : 0;
}

bool noNegativeCoefficient(const Terms& terms) {
  return llvm::all_of(terms, [](const Term& term) { return term.coefficient >= 0; });
}

bool noPositiveCoefficient(const Terms& terms) {
  return llvm::all_of(terms, [](const Term& term) { return term.coefficient <= 0; });
}

// Is the constant no multiple of what divides all other coefficients? Then there is no zero.
bool hasNoZeroByDivisibility(const Terms& terms) {
  uint64_t divisor = 0;
  for (const Term& term : terms)
    if (!term.monomial.empty())
      divisor = std::gcd(divisor, magnitude(term.coefficient));
  return divisor != 0 && magnitude(constantTerm(terms)) % divisor != 0;
}

std::optional<int64_t> divideExactly(int64_t a, int64_t b) {
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1) || a % b != 0)
    return std::nullopt;
  return a / b;
}

std::optional<Term> divideExactly(const Term& a, const Term& b) {
  std::optional<int64_t> coefficient = divideExactly(a.coefficient, b.coefficient);
  if (!coefficient ||
      !std::includes(a.monomial.begin(), a.monomial.end(), b.monomial.begin(), b.monomial.end()))
    return std::nullopt;
  Term quotient{*coefficient, {}};
  std::set_difference(a.monomial.begin(), a.monomial.end(), b.monomial.begin(), b.monomial.end(),
                      std::back_inserter(quotient.monomial));
  return quotient;
}

bool isIdentifier(llvm::StringRef name) {
  return !name.empty() && isDimNameStart(name.front()) && llvm::all_of(name, isDimNamePart);
}

// Braces are doubled inside braces: two polynomials never print alike.
void printName(std::string& out, llvm::StringRef name) {
  if (isIdentifier(name)) {
    out += name;
    return;
  }
  out += '{';
  for (char c : name) {
    if (c == '{' || c == '}')
      out += c;
    out += c;
  }
  out += '}';
}

void printTerm(std::string& out, const Term& term) {
  uint64_t factor = magnitude(term.coefficient);
  bool first = term.monomial.empty() || factor != 1;
  if (first)
    out += std::to_string(factor);
  for (const Symbol& symbol : term.monomial) {
    if (std::exchange(first, true))
      out += '*';
    printName(out, symbol.name());
  }
}

} // namespace

// `terms` is canonical: sorted by `precedes`, monomials distinct, no coefficient 0; never a lone
// constant (that is Kind::Constant).
struct Dim::Polynomial {
  Terms terms;
  size_t hash;

  static Terms termsOf(const Dim& dim) {
    assert(!dim.isUnknown());
    if (dim.kind_ == Kind::Polynomial)
      return dim.polynomial_->terms;
    return dim.constant_ == 0 ? Terms() : Terms{Term{dim.constant_, {}}};
  }

  static Dim canonical(Terms terms);
  static Dim product(const Terms& a, const Terms& b);
};

Dim Dim::Polynomial::canonical(Terms terms) {
  llvm::sort(terms, [](const Term& a, const Term& b) { return precedes(a.monomial, b.monomial); });
  Terms merged;
  for (size_t i = 0; i < terms.size();) {
    Term term{0, std::move(terms[i].monomial)};
    Wide sum = terms[i].coefficient;
    for (++i; i < terms.size() && terms[i].monomial == term.monomial; ++i)
      sum += terms[i].coefficient;
    if (!fits(sum))
      return Dim::unknown();
    term.coefficient = static_cast<int64_t>(sum);
    if (term.coefficient != 0)
      merged.push_back(std::move(term));
  }
  if (merged.empty())
    return Dim::fixed(0);
  size_t degree = merged.front().monomial.size();
  if (degree == 0)
    return Dim::fixed(merged.front().coefficient);
  if (degree > maxDegree || merged.size() > maxTerms)
    return Dim::unknown();

  llvm::hash_code hash = llvm::hash_value(merged.size());
  for (const Term& term : merged) {
    hash = llvm::hash_combine(hash, term.coefficient, term.monomial.size());
    for (const Symbol& symbol : term.monomial)
      hash = llvm::hash_combine(hash, symbol.name());
  }
  Dim result;
  result.kind_ = Kind::Polynomial;
  result.polynomial_ =
      std::make_shared<const Polynomial>(Polynomial{std::move(merged), static_cast<size_t>(hash)});
  return result;
}

Dim Dim::Polynomial::product(const Terms& a, const Terms& b) {
  Terms terms;
  terms.reserve(a.size() * b.size());
  for (const Term& x : a)
    for (const Term& y : b) {
      Term term{0, {}};
      if (__builtin_mul_overflow(x.coefficient, y.coefficient, &term.coefficient))
        return Dim::unknown();
      std::merge(x.monomial.begin(), x.monomial.end(), y.monomial.begin(), y.monomial.end(),
                 std::back_inserter(term.monomial));
      terms.push_back(std::move(term));
    }
  return canonical(std::move(terms));
}

Dim Dim::fixed(int64_t value) {
  Dim result;
  result.kind_ = Kind::Constant;
  result.constant_ = value;
  return result;
}

Dim Dim::symbol(llvm::StringRef name) {
  if (name.empty() || name.size() > maxNameBytes)
    return unknown();
  return Polynomial::canonical({Term{1, {Symbol(name)}}});
}

std::optional<int64_t> Dim::value() const {
  return kind_ == Kind::Constant ? std::optional<int64_t>(constant_) : std::nullopt;
}

bool Dim::isKnownEqual(const Dim& other) const { return !isUnknown() && *this == other; }

bool Dim::isKnownDifferent(const Dim& other) const {
  if (value() && other.value())
    return *value() != *other.value();
  Dim difference = *this - other;
  if (difference.isUnknown())
    return false;
  Terms terms = Polynomial::termsOf(difference);
  int64_t constant = constantTerm(terms);
  return (constant > 0 && noNegativeCoefficient(terms)) ||
         (constant < 0 && noPositiveCoefficient(terms)) || hasNoZeroByDivisibility(terms);
}

bool Dim::isKnownNonNegative() const {
  return !isUnknown() && noNegativeCoefficient(Polynomial::termsOf(*this));
}

bool Dim::isKnownPositive() const {
  return isKnownNonNegative() && constantTerm(Polynomial::termsOf(*this)) > 0;
}

bool Dim::isKnownLess(const Dim& other) const {
  if (value() && other.value())
    return *value() < *other.value();
  return (other - *this).isKnownPositive();
}

bool Dim::isKnownLessEqual(const Dim& other) const {
  if (value() && other.value())
    return *value() <= *other.value();
  return (other - *this).isKnownNonNegative();
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.isUnknown() || b.isUnknown())
    return Dim::unknown();
  Terms terms = Dim::Polynomial::termsOf(a);
  llvm::append_range(terms, Dim::Polynomial::termsOf(b));
  return Dim::Polynomial::canonical(std::move(terms));
}

Dim operator-(const Dim& a) { return Dim::fixed(-1) * a; }

Dim operator-(const Dim& a, const Dim& b) { return a + -b; }

Dim operator*(const Dim& a, const Dim& b) {
  if (a.isUnknown() || b.isUnknown())
    return Dim::unknown();
  return Dim::Polynomial::product(Dim::Polynomial::termsOf(a), Dim::Polynomial::termsOf(b));
}

std::optional<Dim> Dim::dividedBy(const Dim& divisor) const {
  if (isUnknown() || divisor.isUnknown())
    return std::nullopt;
  const Terms divisorTerms = Polynomial::termsOf(divisor);
  if (divisorTerms.empty() ||
      (!noNegativeCoefficient(divisorTerms) && !noPositiveCoefficient(divisorTerms)))
    return std::nullopt;
  // Leading terms divide exactly in every step when the polynomials do; they fall in `precedes`
  // order, and the quotient's size is capped, so this ends.
  Dim remainder = *this;
  Terms quotient;
  while (remainder.value() != 0) {
    std::optional<Term> term =
        divideExactly(Polynomial::termsOf(remainder).front(), divisorTerms.front());
    if (!term || quotient.size() == maxTerms)
      return std::nullopt;
    remainder = remainder - Polynomial::product({*term}, divisorTerms);
    if (remainder.isUnknown())
      return std::nullopt;
    quotient.push_back(std::move(*term));
  }
  return Polynomial::canonical(std::move(quotient));
}

llvm::SmallVector<std::string> Dim::symbols() const {
  llvm::SmallVector<std::string> names;
  if (kind_ == Kind::Polynomial)
    for (const Term& term : polynomial_->terms)
      for (const Symbol& symbol : term.monomial)
        names.push_back(symbol.name());
  llvm::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Dim Dim::substitute(llvm::function_ref<std::optional<Dim>(llvm::StringRef)> lookup) const {
  if (kind_ != Kind::Polynomial)
    return *this;
  Dim total = fixed(0);
  for (const Term& term : polynomial_->terms) {
    Dim product = fixed(term.coefficient);
    for (const Symbol& name : term.monomial)
      product = product * lookup(name.name()).value_or(symbol(name.name()));
    total = total + product;
  }
  return total;
}

std::optional<int64_t>
Dim::evaluate(llvm::function_ref<std::optional<int64_t>(llvm::StringRef)> lookup) const {
  if (kind_ != Kind::Polynomial)
    return value();
  Wide total = 0;
  for (const Term& term : polynomial_->terms) {
    // Zeros go first: a vanishing term has no overflow, in whichever order its factors stand.
    llvm::SmallVector<int64_t, 4> factors;
    for (const Symbol& symbol : term.monomial) {
      std::optional<int64_t> factor = lookup(symbol.name());
      if (!factor)
        return std::nullopt;
      factors.push_back(*factor);
    }
    if (llvm::is_contained(factors, 0))
      continue;
    int64_t product = term.coefficient;
    for (int64_t factor : factors)
      if (__builtin_mul_overflow(product, factor, &product))
        return std::nullopt;
    total += product;
  }
  return fits(total) ? std::optional<int64_t>(static_cast<int64_t>(total)) : std::nullopt;
}

std::string Dim::str() const {
  if (isUnknown())
    return "?";
  if (kind_ == Kind::Constant)
    return std::to_string(constant_);
  const Terms& terms = polynomial_->terms;
  if (terms.size() == 1 && terms[0].coefficient == 1 && terms[0].monomial.size() == 1)
    return terms[0].monomial[0].name();
  std::string out;
  for (const Term& term : terms) {
    bool negative = term.coefficient < 0;
    if (out.empty())
      out += negative ? "-" : "";
    else
      out += negative ? " - " : " + ";
    printTerm(out, term);
  }
  return out;
}

bool operator==(const Dim& a, const Dim& b) {
  if (a.kind_ != b.kind_)
    return false;
  if (a.kind_ != Dim::Kind::Polynomial)
    return a.constant_ == b.constant_;
  return a.polynomial_ == b.polynomial_ || (a.polynomial_->hash == b.polynomial_->hash &&
                                            a.polynomial_->terms == b.polynomial_->terms);
}

llvm::hash_code hash_value(const Dim& dim) {
  if (dim.kind_ == Dim::Kind::Polynomial)
    return llvm::hash_value(dim.polynomial_->hash);
  return llvm::hash_combine(static_cast<int>(dim.kind_), dim.constant_);
}

} // namespace kvopt
