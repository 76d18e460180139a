// Field: exact arithmetic that stands in for real numbers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace kvopt::check {

/// Kinds of elements. The order is the priority of a sum: a later kind hides an earlier one.
enum class Status : uint8_t {
  Number,
  MinusInfinity,
  /// A large negative number that a mask adds to a score instead of minus infinity. It is an
  /// ordinary number, except as an operand of an exponential or of a bound.
  Fill,
  PlusInfinity,
  /// Some finite number that no result may depend on: a row that sees no key.
  Unspecified,
  NotANumber,
  /// The arithmetic cannot represent it. Never equal to anything.
  Undecided,
};

/// A real number as its residues modulo two primes.
struct Exact {
  uint32_t p = 0;
  uint32_t q = 0; ///< meaningless without hasExponent
  Status status = Status::Number;
  /// Whether q is known. Results of an exponential have no q.
  bool hasExponent = true;
  /// Binary exponent of a known magnitude that a fill or a positive number has; 0 if it has none.
  int8_t level = 0;
  /// Whether a fill depends on an unspecified number, so that p and q mean nothing.
  bool isVague = false;

  bool isNumber() const { return status == Status::Number; }
  /// Whether p is the number: of numbers, and of fills, which are numbers outside of a softmax.
  bool hasResidue() const { return isNumber() || (status == Status::Fill && !isVague); }
  /// Whether the element is the number zero.
  bool isZero() const { return isNumber() && p == 0 && (q == 0 || !hasExponent); }
  /// Whether two elements are known to be equal.
  bool isEqual(const Exact& other) const {
    if (hasResidue() && other.hasResidue())
      return p == other.p && (!hasExponent || !other.hasExponent || q == other.q);
    return status == other.status && status != Status::Undecided && !hasResidue() &&
           !other.hasResidue();
  }
};

/// Mixes the bits of a number (the finalizer of splitmix64, twice).
uint64_t mixBits(uint64_t bits);

/// Two prime fields, modulo p and modulo q = (p - 1) / 2. exp(x) is w^x for a w of order q modulo
/// p, so exp(a + b) = exp(a) exp(b). 2, 3, 5, 7, 11 and 13 have square roots in both fields, and x
/// -> x^((p + 1) / 4) is a root that is multiplicative on squares.
class Field {
public:
  /// `seed` selects the primes, of about 2,500 pairs with p between 2^30 and 2^31, and the key of
  /// all hashes.
  explicit Field(uint32_t seed);

  uint32_t modulusP() const { return p; }
  uint32_t modulusQ() const { return q; }

  Exact integer(int64_t value) const;
  /// (numerator / denominator)^(1 / root) of positive numbers; root is 1, 2 or 4.
  Exact fraction(uint64_t numerator, uint64_t denominator, unsigned root = 1) const;
  /// mantissa * 2^exponent.
  Exact dyadic(int64_t mantissa, int exponent) const;
  /// An arbitrary number that `bits` determine.
  Exact arbitrary(uint64_t bits) const;

  Exact add(const Exact& a, const Exact& b) const;
  Exact negate(const Exact& a) const;
  /// `factor` is b where b is a known number, otherwise 0.
  Exact multiply(const Exact& a, const Exact& b, double factor = 0) const;
  /// 1 / a. Of zero, whose sign is unknown, the inverse is undecided.
  Exact invert(const Exact& a) const;
  /// a / b, where 0 / 0 is not a number. `divisor` is b where b is a known number, otherwise 0.
  Exact divide(const Exact& a, const Exact& b, double divisor = 0) const;
  /// exp(a). Of a fill, it is taken for zero.
  Exact exponential(const Exact& a) const;
  /// An unknown function, which `name` identifies, of exact operands.
  Exact unknown(uint64_t name, std::initializer_list<Exact> operands) const;
  /// a without its residue modulo q, if it has one, or with an arbitrary residue that a determines.
  Exact withExponent(const Exact& a) const;

  uint32_t power(uint32_t base, uint64_t exponent, uint32_t modulus) const;

private:
  /// 2^i and 2^-i for small i.
  struct PowersOfTwo {
    explicit PowersOfTwo(uint32_t modulus);
    std::vector<uint32_t> positive, negative;
  };

  uint32_t q;
  uint32_t p;
  uint32_t w;
  uint64_t key;
  PowersOfTwo powersP, powersQ;
};

/// A sum of products of exact elements.
class ExactSum {
public:
  explicit ExactSum(const Field& arithmetic)
      : field(arithmetic), wrapP(uint64_t(arithmetic.modulusP()) << 32),
        wrapQ(uint64_t(arithmetic.modulusQ()) << 32) {}
  void add(const Exact& a) { add(a, {1, 1}); }
  void add(const Exact& a, const Exact& b);
  /// The sum. In a sum without products, minus infinity remains what it is; in sums of products, it
  /// becomes unspecified. Fills are ordinary numbers.
  Exact sum(bool ofProducts) const;

private:
  const Field& field;
  uint64_t wrapP, wrapQ;
  uint64_t p = 0;
  uint64_t q = 0;
  bool hasExponent = true;
  bool sawMinus = false;
  bool sawPlus = false;
  Status status = Status::Number;
};

/// A maximum or minimum, as an unknown commutative function of the operands. The infinity that
/// bounds all numbers on the wanted side is the result; the other one is left out. Fills are taken
/// to be below all other numbers.
class ExactBound {
public:
  ExactBound(const Field& arithmetic, bool isMaximum)
      : field(arithmetic), isUpper(isMaximum), name(isMaximum ? 0x4d6178 : 0x4d696e) {}
  void add(const Exact& a);
  Exact bound() const;
  /// Whether fills were compared with other numbers.
  bool assumesFills() const { return saw(Status::Fill) && saw(Status::Number); }

private:
  bool saw(Status status) const { return seen >> unsigned(status) & 1; }

  const Field& field;
  bool isUpper;
  uint64_t name;
  Exact total, totalOfFills;
  bool hasVague = false;
  unsigned seen = 0; ///< a bit for each status
};

} // namespace kvopt::check
