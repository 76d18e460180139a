// Arithmetic, comparison and division of canonical integer polynomials.
#include "ir/dims/dim.h"

#include "ir/dims/dim_names.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace kvopt::ir {

namespace {

// Can hold any sum of 4096 int64_t.
__extension__ using Wide = __int128;

// Names are shared, so that copying a monomial copies no text.
class Symbol {
public:
  explicit Symbol(llvm::StringRef name)
      : shared_(std::make_shared<const Shared>(Shared{name.str(), llvm::hash_value(name)})) {}
  const std::string& name() const { return shared_->name; }
  llvm::hash_code hash() const { return shared_->hash; }
  friend bool operator==(const Symbol& a, const Symbol& b) {
    return a.shared_ == b.shared_ || a.name() == b.name();
  }
  friend bool operator<(const Symbol& a, const Symbol& b) {
    return a.shared_ != b.shared_ && a.name() < b.name();
  }

private:
  struct Shared {
    std::string name;
    llvm::hash_code hash;
  };
  std::shared_ptr<const Shared> shared_;
};

// Product of symbols in byte order; powers repeat the symbol.
using Monomial = llvm::SmallVector<Symbol, 2>;

// Graded lexicographic order: higher degree first. Multiplication by a monomial preserves the
// order, which the division requires.
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

// Whether the constant is not a multiple of the greatest common divisor of the other coefficients.
// If so, the polynomial is never zero.
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

// Braces within braces are doubled, so that different polynomials print differently.
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

// `terms` is canonical: sorted by `precedes`, with distinct monomials and nonzero coefficients;
// never only a constant (that is Kind::Constant).
struct Dim::Polynomial {
  Terms terms;
  size_t hash;

  // Terms of a known dim; `constant` stores those of a constant.
  static const Terms& termsOf(const Dim& dim, Terms& constant) {
    assert(!dim.isUnknown());
    if (dim.kind_ == Kind::Polynomial)
      return dim.polynomial_->terms;
    if (dim.constant_ != 0)
      constant.push_back({dim.constant_, {}});
    return constant;
  }

  // From terms in any order.
  static Dim canonical(Terms terms);
  // From canonical terms.
  static Dim of(Terms terms);
  static Dim product(const Terms& a, const Terms& b);
  static Dim scaled(const Dim& dim, int64_t factor);
  // a + factor * b
  static Dim sum(const Dim& a, const Dim& b, int64_t factor);
};

Dim Dim::Polynomial::canonical(Terms terms) {
  llvm::sort(terms, [](const Term& a, const Term& b) { return precedes(a.monomial, b.monomial); });
  Terms merged;
  merged.reserve(terms.size());
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
  return of(std::move(merged));
}

Dim Dim::Polynomial::of(Terms terms) {
  if (terms.empty())
    return Dim::fixed(0);
  size_t degree = terms.front().monomial.size();
  if (degree == 0)
    return Dim::fixed(terms.front().coefficient);
  if (degree > maxDegree || terms.size() > maxTerms)
    return Dim::unknown();

  llvm::hash_code hash = llvm::hash_value(terms.size());
  for (const Term& term : terms) {
    hash = llvm::hash_combine(hash, term.coefficient, term.monomial.size());
    for (const Symbol& symbol : term.monomial)
      hash = llvm::hash_combine(hash, symbol.hash());
  }
  Dim result;
  result.kind_ = Kind::Polynomial;
  result.polynomial_ =
      std::make_shared<const Polynomial>(Polynomial{std::move(terms), static_cast<size_t>(hash)});
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

Dim Dim::Polynomial::scaled(const Dim& dim, int64_t factor) {
  if (factor == 0)
    return Dim::fixed(0);
  if (factor == 1)
    return dim;
  Terms constant;
  Terms terms = termsOf(dim, constant);
  for (Term& term : terms)
    if (__builtin_mul_overflow(term.coefficient, factor, &term.coefficient))
      return Dim::unknown();
  return of(std::move(terms));
}

// Merges two sorted lists of terms.
Dim Dim::Polynomial::sum(const Dim& a, const Dim& b, int64_t factor) {
  Terms constants[2];
  const Terms& left = termsOf(a, constants[0]);
  const Terms& right = termsOf(b, constants[1]);
  Terms terms;
  terms.reserve(left.size() + right.size());
  auto append = [&](Wide coefficient, const Monomial& monomial) {
    if (coefficient != 0)
      terms.push_back({static_cast<int64_t>(coefficient), monomial});
    return fits(coefficient);
  };
  for (auto x = left.begin(), y = right.begin(); x != left.end() || y != right.end();) {
    bool takesLeft = y == right.end() || (x != left.end() && !precedes(y->monomial, x->monomial));
    bool takesRight = x == left.end() || (y != right.end() && !precedes(x->monomial, y->monomial));
    Wide coefficient = takesLeft ? x->coefficient : 0;
    if (takesRight)
      coefficient += Wide(factor) * y->coefficient;
    if (!append(coefficient, takesLeft ? x->monomial : y->monomial))
      return Dim::unknown();
    x += takesLeft;
    y += takesRight;
  }
  return of(std::move(terms));
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
  Terms storage;
  const Terms& terms = Polynomial::termsOf(difference, storage);
  int64_t constant = constantTerm(terms);
  return (constant > 0 && noNegativeCoefficient(terms)) ||
         (constant < 0 && noPositiveCoefficient(terms)) || hasNoZeroByDivisibility(terms);
}

bool Dim::isKnownNonNegative() const {
  if (kind_ == Kind::Polynomial)
    return noNegativeCoefficient(polynomial_->terms);
  return kind_ == Kind::Constant && constant_ >= 0;
}

bool Dim::isKnownPositive() const {
  if (kind_ == Kind::Polynomial)
    return noNegativeCoefficient(polynomial_->terms) && constantTerm(polynomial_->terms) > 0;
  return kind_ == Kind::Constant && constant_ > 0;
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
  return Dim::Polynomial::sum(a, b, 1);
}

Dim operator-(const Dim& a) { return a.isUnknown() ? a : Dim::Polynomial::scaled(a, -1); }

Dim operator-(const Dim& a, const Dim& b) {
  if (a.isUnknown() || b.isUnknown())
    return Dim::unknown();
  return Dim::Polynomial::sum(a, b, -1);
}

Dim operator*(const Dim& a, const Dim& b) {
  if (a.isUnknown() || b.isUnknown())
    return Dim::unknown();
  if (std::optional<int64_t> factor = a.value())
    return Dim::Polynomial::scaled(b, *factor);
  if (std::optional<int64_t> factor = b.value())
    return Dim::Polynomial::scaled(a, *factor);
  Terms unused;
  return Dim::Polynomial::product(Dim::Polynomial::termsOf(a, unused),
                                  Dim::Polynomial::termsOf(b, unused));
}

std::optional<Dim> Dim::dividedBy(const Dim& divisor) const {
  if (isUnknown() || divisor.isUnknown())
    return std::nullopt;
  if (divisor.value() == 1)
    return *this;
  Terms storage;
  const Terms& divisorTerms = Polynomial::termsOf(divisor, storage);
  if (divisorTerms.empty() ||
      (!noNegativeCoefficient(divisorTerms) && !noPositiveCoefficient(divisorTerms)))
    return std::nullopt;
  // If the polynomials divide exactly, leading terms divide exactly in every step. The leading
  // terms decrease in `precedes` order and the size of the quotient is limited, so the loop ends.
  Dim remainder = *this;
  Terms quotient;
  while (remainder.value() != 0) {
    Terms constant;
    std::optional<Term> term =
        divideExactly(Polynomial::termsOf(remainder, constant).front(), divisorTerms.front());
    if (!term || quotient.size() == maxTerms)
      return std::nullopt;
    remainder = remainder - Polynomial::product({*term}, divisorTerms);
    if (remainder.isUnknown())
      return std::nullopt;
    quotient.push_back(std::move(*term));
  }
  return Polynomial::canonical(std::move(quotient));
}

void Dim::forEachTerm(
    llvm::function_ref<void(int64_t, llvm::ArrayRef<llvm::StringRef>)> use) const {
  if (isUnknown())
    return;
  Terms constant;
  for (const Term& term : Polynomial::termsOf(*this, constant)) {
    llvm::SmallVector<llvm::StringRef, 4> names;
    for (const Symbol& symbol : term.monomial)
      names.push_back(symbol.name());
    use(term.coefficient, names);
  }
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
  Terms kept; // sorted terms without symbols that are replaced
  Dim replaced = fixed(0);
  for (const Term& term : polynomial_->terms) {
    Term rest{term.coefficient, {}};
    std::optional<Dim> product;
    for (const Symbol& name : term.monomial) {
      std::optional<Dim> value = lookup(name.name());
      if (value)
        product = product ? *product * *value : *value;
      else
        rest.monomial.push_back(name);
    }
    if (product)
      replaced = replaced + *product * Polynomial::canonical({std::move(rest)});
    else
      kept.push_back(std::move(rest));
  }
  return Polynomial::of(std::move(kept)) + replaced;
}

std::optional<int64_t>
Dim::evaluate(llvm::function_ref<std::optional<int64_t>(llvm::StringRef)> lookup) const {
  if (kind_ != Kind::Polynomial)
    return value();
  Wide total = 0;
  for (const Term& term : polynomial_->terms) {
    // Zero factors go first: a product with zero cannot overflow, whatever the order of its
    // factors.
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

// Parsing of polynomials.

namespace {

// Recursive-descent parser of
//   sum := product (("+" | "-") product)*    product := factor ("*" factor)*
//   factor := integer | name | "(" sum ")" | "-" factor
// Signs are pushed down to literals, because INT64_MIN has no positive counterpart.
class DimParser {
public:
  explicit DimParser(llvm::StringRef text) : rest_(text) {}

  std::optional<Dim> run() {
    std::optional<Dim> result = sum();
    skipBlanks();
    return rest_.empty() ? result : std::nullopt;
  }

private:
  static constexpr unsigned maxDepth = 64;

  void skipBlanks() { rest_ = rest_.ltrim(" \t"); }
  bool consume(char c) {
    skipBlanks();
    return rest_.consume_front(llvm::StringRef(&c, 1));
  }

  static std::optional<Dim> known(const Dim& dim) {
    return dim.isUnknown() ? std::nullopt : std::optional<Dim>(dim);
  }

  std::optional<Dim> sum() {
    std::optional<Dim> total = product(false);
    while (total) {
      bool plus = consume('+');
      if (!plus && !consume('-'))
        break;
      std::optional<Dim> next = product(!plus);
      total = next ? known(*total + *next) : std::nullopt;
    }
    return total;
  }

  std::optional<Dim> product(bool negate) {
    std::optional<Dim> total = factor(negate);
    while (total && consume('*')) {
      std::optional<Dim> next = factor(false);
      total = next ? known(*total * *next) : std::nullopt;
    }
    return total;
  }

  std::optional<Dim> factor(bool negate) {
    skipBlanks();
    if (rest_.empty())
      return std::nullopt;
    if (llvm::isDigit(rest_.front()))
      return literal(negate);
    if (isDimNameStart(rest_.front())) {
      llvm::StringRef name = rest_.take_while(isDimNamePart);
      rest_ = rest_.drop_front(name.size());
      Dim symbol = Dim::symbol(name);
      return known(negate ? -symbol : symbol);
    }
    if (depth_ == maxDepth)
      return std::nullopt;
    ++depth_;
    std::optional<Dim> result;
    if (consume('-')) {
      result = factor(!negate);
    } else if (consume('(')) {
      result = sum();
      if (!consume(')'))
        return std::nullopt;
      if (result && negate)
        result = known(-*result);
    }
    --depth_;
    return result;
  }

  std::optional<Dim> literal(bool negate) {
    llvm::StringRef digits = rest_.take_while([](char c) { return llvm::isDigit(c); });
    rest_ = rest_.drop_front(digits.size());
    int64_t value = 0;
    if (llvm::StringRef((negate ? "-" : "") + digits.str()).getAsInteger(10, value))
      return std::nullopt;
    return Dim::fixed(value);
  }

  llvm::StringRef rest_;
  unsigned depth_ = 0;
};

} // namespace

std::optional<Dim> Dim::parse(llvm::StringRef text) {
  if (text.trim(" \t") == "?")
    return unknown();
  if (text.size() > maxTextBytes)
    return std::nullopt;
  return DimParser(text).run();
}

} // namespace kvopt::ir
