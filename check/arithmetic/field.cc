// Arithmetic modulo two primes.
#include "check/arithmetic/field.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>

namespace kvopt::check {
namespace {

uint32_t productOf(uint64_t a, uint64_t b, uint32_t modulus) {
  return static_cast<uint32_t>(a * b % modulus);
}

Status statusOfSum(Status a, Status b) {
  const Status more = std::max(a, b);
  const Status less = std::min(a, b);
  if (more == Status::Unspecified && (less == Status::MinusInfinity || less == Status::Fill))
    return less; // the unspecified number is finite
  if (more >= Status::Unspecified || less == Status::Number)
    return more;
  if (less == Status::MinusInfinity)
    return more == Status::PlusInfinity ? Status::NotANumber : Status::MinusInfinity;
  return more;
}

Status negated(Status status) {
  switch (status) {
  case Status::MinusInfinity:
    return Status::PlusInfinity;
  case Status::PlusInfinity:
    return Status::MinusInfinity;
  case Status::Fill:
    return Status::Number;
  default:
    return status;
  }
}

/// The status outside of sums: that of a number for a fill.
Status statusOf(const Exact& a) {
  if (a.status == Status::Fill)
    return a.isVague ? Status::Unspecified : Status::Number;
  return a.status;
}

/// Least binary exponent of a fill.
constexpr int leastLevel = 13;
/// Exponent of a fill whose magnitude is unknown.
constexpr int8_t unknownLevel = 127;
/// Difference of exponents from which on a positive number leaves a fill what it is.
constexpr int cancelledLevels = 4;

/// The exponent of a product of an element with a level and a known positive number.
int8_t scaledLevel(int8_t level, double factor) {
  if (level == 0 || level == unknownLevel)
    return level;
  return static_cast<int8_t>(std::clamp(level + std::ilogb(factor), 0, unknownLevel - 1));
}

/// Status and level of a product with a known positive number.
void scaleFill(Exact& product, const Exact& a, double factor) {
  product.level = scaledLevel(a.level, factor);
  product.isVague = a.isVague;
  if (product.level >= leastLevel)
    product.status = Status::Fill;
  else if (a.isVague)
    product.status = Status::Unspecified;
}

/// Kind of the product of zero and an element.
Status timesZero(Status status) {
  if (status == Status::MinusInfinity || status == Status::PlusInfinity)
    return Status::NotANumber;
  return status >= Status::NotANumber ? status : Status::Number;
}

} // namespace

uint64_t mixBits(uint64_t bits) {
  for (int round = 0; round < 2; ++round) {
    bits += 0x9E3779B97F4A7C15u;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    bits ^= bits >> 31;
  }
  return bits;
}

namespace {

uint32_t powerOf(uint64_t base, uint64_t exponent, uint32_t modulus) {
  uint64_t result = 1;
  for (uint64_t square = base % modulus; exponent; exponent >>= 1) {
    if (exponent & 1)
      result = result * square % modulus;
    square = square * square % modulus;
  }
  return static_cast<uint32_t>(result);
}

/// Whether an odd number of 32 bits is prime: the test of Miller and Rabin. These bases decide all
/// numbers below 3,215,031,751.
bool isPrime(uint32_t number) {
  uint32_t odd = number - 1;
  unsigned twos = 0;
  for (; odd % 2 == 0; odd /= 2)
    ++twos;
  for (uint64_t base : {2, 3, 5, 7}) {
    uint64_t x = powerOf(base, odd, number);
    for (unsigned i = 1; i < twos && x != 1 && x != number - 1; ++i)
      x = x * x % number;
    if (x != number - 1 && (x != 1 || powerOf(base, odd, number) != 1))
      return false;
  }
  return true;
}

constexpr uint32_t smallPrimes[] = {3, 5, 7, 11, 13};

bool hasSmallFactor(uint32_t number) {
  return std::any_of(std::begin(smallPrimes), std::end(smallPrimes),
                     [&](uint32_t prime) { return number % prime == 0; });
}

/// Whether 2, 3, 5, 7, 11 and 13 are squares modulo a prime, which is 7 modulo 8.
bool hasRootsOfSmallPrimes(uint32_t modulus) {
  return std::all_of(std::begin(smallPrimes), std::end(smallPrimes), [&](uint32_t prime) {
    return powerOf(prime, (modulus - 1) / 2, modulus) == 1;
  });
}

/// A prime q between 2^29 and 2^30 for which 2q + 1 is prime and both have the roots.
uint32_t drawnPrime(uint32_t seed) {
  constexpr uint32_t least = uint32_t(1) << 29, step = 8;
  for (uint64_t draw = 0;; ++draw) {
    const uint64_t bits = mixBits(uint64_t(seed) << 32 ^ draw);
    const uint32_t q = least + static_cast<uint32_t>(bits % (least / step)) * step + (step - 1);
    const uint32_t p = 2 * q + 1;
    if (!hasSmallFactor(q) && !hasSmallFactor(p) && isPrime(q) && isPrime(p) &&
        hasRootsOfSmallPrimes(q) && hasRootsOfSmallPrimes(p))
      return q;
  }
}

} // namespace

Field::Field(uint32_t seed)
    : q(drawnPrime(seed)), p(2 * q + 1), w(4), // 4 = 2^((p - 1) / q) has order q
      key(mixBits(0x6b766f7074u + seed)), powersP(p), powersQ(q) {}

uint32_t Field::power(uint32_t base, uint64_t exponent, uint32_t modulus) const {
  return powerOf(base, exponent, modulus);
}

Exact Field::integer(int64_t value) const {
  auto residue = [value](int64_t modulus) {
    return static_cast<uint32_t>((value % modulus + modulus) % modulus);
  };
  return {residue(p), residue(q)};
}

Exact Field::fraction(uint64_t numerator, uint64_t denominator, unsigned root) const {
  auto residue = [&](uint32_t modulus) {
    uint32_t x = productOf(
        numerator % modulus,
        power(static_cast<uint32_t>(denominator % modulus), modulus - 2, modulus), modulus);
    for (unsigned left = root; left > 1 && x; left /= 2)
      x = power(x, (uint64_t(modulus) + 1) / 4, modulus);
    return x;
  };
  return {residue(p), residue(q)};
}

Exact Field::dyadic(int64_t mantissa, int exponent) const {
  Exact result = integer(mantissa);
  auto scale = [&](uint32_t& residue, uint32_t modulus, const PowersOfTwo& powers) {
    const auto size = static_cast<size_t>(std::abs(exponent));
    const std::vector<uint32_t>& known = exponent < 0 ? powers.negative : powers.positive;
    const uint32_t base = exponent < 0 ? (modulus + 1) / 2 : 2;
    residue =
        productOf(residue, size < known.size() ? known[size] : power(base, size, modulus), modulus);
  };
  scale(result.p, p, powersP);
  scale(result.q, q, powersQ);
  return result;
}

Field::PowersOfTwo::PowersOfTwo(uint32_t modulus) {
  constexpr size_t count = 256; // weights have these exponents
  uint32_t up = 1, down = 1;
  for (size_t i = 0; i < count; ++i) {
    positive.push_back(up);
    negative.push_back(down);
    up = productOf(up, 2, modulus);
    down = productOf(down, (modulus + 1) / 2, modulus);
  }
}

Exact Field::arbitrary(uint64_t bits) const {
  bits = mixBits(key ^ bits);
  return {static_cast<uint32_t>(mixBits(bits ^ 1) % p),
          static_cast<uint32_t>(mixBits(bits ^ 2) % q)};
}

Exact Field::add(const Exact& a, const Exact& b) const {
  uint64_t sumP = uint64_t(a.p) + b.p;
  uint64_t sumQ = uint64_t(a.q) + b.q;
  Exact sum{static_cast<uint32_t>(sumP >= p ? sumP - p : sumP),
            static_cast<uint32_t>(sumQ >= q ? sumQ - q : sumQ), statusOfSum(a.status, b.status),
            a.hasExponent && b.hasExponent, std::max(a.level, b.level)};
  if (sum.status != Status::Fill)
    return sum;
  sum.isVague = a.isVague || b.isVague || std::max(a.status, b.status) == Status::Unspecified;
  // A large positive number may make an ordinary number of a fill.
  const Exact& fill = a.status == Status::Fill ? a : b;
  const Exact& other = a.status == Status::Fill ? b : a;
  if (other.isNumber() && other.level > 0 && other.level >= fill.level - cancelledLevels)
    sum.status = sum.isVague ? Status::Unspecified : Status::Number;
  else if (other.isNumber())
    sum.level = fill.level;
  return sum;
}

Exact Field::negate(const Exact& a) const {
  Exact result{a.p ? p - a.p : 0, a.q ? q - a.q : 0, negated(a.status), a.hasExponent};
  if (a.status != Status::Fill)
    return result;
  result.status = statusOf(a);
  result.level = a.level == unknownLevel ? int8_t(0) : a.level;
  return result;
}

Exact Field::multiply(const Exact& a, const Exact& b, double factor) const {
  const Status ofA = statusOf(a), ofB = statusOf(b), more = std::max(ofA, ofB);
  if (a.isZero() || b.isZero())
    return {0, 0, timesZero(more), true};
  Status status =
      more >= Status::Unspecified || more == Status::Number ? more : Status::Unspecified;
  if (factor != 0 && ofB == Status::Number && ofA != Status::Number && ofA < Status::Unspecified)
    status = factor > 0 ? ofA : negated(ofA);
  Exact product{productOf(a.p, b.p, p), productOf(a.q, b.q, q), status,
                a.hasExponent && b.hasExponent};
  if (factor > 0 && a.status == Status::Fill)
    scaleFill(product, a, factor);
  else if (factor > 0 && a.isNumber() && product.isNumber())
    product.level = scaledLevel(a.level, factor);
  return product;
}

Exact Field::invert(const Exact& a) const {
  if (a.status == Status::MinusInfinity || a.status == Status::PlusInfinity)
    return {0, 0, Status::Number, true};
  if (a.isNumber() && a.p == 0)
    return {0, 0, Status::Undecided, false};
  const Status status = statusOf(a);
  return {power(a.p, p - 2, p), power(a.q, q - 2, q), status, a.hasExponent && a.q != 0};
}

Exact Field::divide(const Exact& a, const Exact& b, double divisor) const {
  if (a.isZero() && b.isZero())
    return {0, 0, Status::NotANumber, false};
  return multiply(a, invert(b), divisor != 0 ? 1 / divisor : 0);
}

Exact Field::exponential(const Exact& a) const {
  switch (a.status) {
  case Status::MinusInfinity:
  case Status::Fill:
    return {0, 0, Status::Number, true};
  case Status::PlusInfinity:
    return {0, 0, Status::Unspecified, false};
  case Status::Number:
    break;
  default:
    return {0, 0, a.status, false};
  }
  if (a.isZero())
    return {1, 1};
  if (!a.hasExponent)
    return {0, 0, Status::Undecided, false};
  return {power(w, a.q, p), 0, Status::Number, false};
}

Exact Field::unknown(uint64_t name, std::initializer_list<Exact> operands) const {
  uint64_t bits = mixBits(key ^ name);
  Status status = Status::Number;
  for (const Exact& operand : operands) {
    const uint64_t residue = operand.hasResidue() ? operand.p : 0;
    const Status own = statusOf(operand);
    bits = mixBits(bits ^ residue ^ (static_cast<uint64_t>(own) << 40));
    // What a function has at infinity may be no number.
    const bool isInfinite = own == Status::MinusInfinity || own == Status::PlusInfinity;
    if (isInfinite || own >= Status::Unspecified)
      status = std::max(status, isInfinite ? Status::Undecided : own);
  }
  Exact result = arbitrary(bits);
  result.status = status;
  return result;
}

Exact Field::withExponent(const Exact& a) const {
  if (a.hasExponent || !a.isNumber())
    return a;
  Exact result = a;
  result.q = unknown(0x637574, {a}).q;
  result.hasExponent = true;
  return result;
}

void ExactSum::add(const Exact& a, const Exact& b) {
  const Status more = std::max(statusOf(a), statusOf(b));
  if (a.isZero() || b.isZero()) {
    status = std::max(status, timesZero(more));
    return;
  }
  if (more != Status::Number) {
    sawMinus |= more == Status::MinusInfinity;
    sawPlus |= more == Status::PlusInfinity;
    status = std::max(status, more);
    return;
  }
  p += uint64_t(a.p) * b.p;
  if (p >= wrapP)
    p -= wrapP;
  hasExponent &= a.hasExponent && b.hasExponent;
  q += uint64_t(a.q) * b.q;
  if (q >= wrapQ)
    q -= wrapQ;
}

Exact ExactSum::sum(bool ofProducts) const {
  Status result = status;
  if (ofProducts && result != Status::Number && result < Status::Unspecified)
    result = Status::Unspecified;
  if (!ofProducts && sawMinus && result < Status::Unspecified)
    result = sawPlus ? Status::NotANumber : Status::MinusInfinity;
  return {static_cast<uint32_t>(p % field.modulusP()), static_cast<uint32_t>(q % field.modulusQ()),
          result, hasExponent};
}

void ExactBound::add(const Exact& a) {
  // Without the residue modulo q, which equal numbers need not both have.
  if (a.isNumber())
    total = field.add(total, field.unknown(name, {a}));
  else if (a.hasResidue())
    totalOfFills = field.add(totalOfFills, field.unknown(name, {a}));
  hasVague |= a.isVague;
  seen |= 1u << unsigned(a.status);
}

Exact ExactBound::bound() const {
  static constexpr Status upper[] = {Status::Undecided,    Status::NotANumber, Status::PlusInfinity,
                                     Status::Unspecified,  Status::Number,     Status::Fill,
                                     Status::MinusInfinity};
  static constexpr Status lower[] = {Status::Undecided,   Status::NotANumber, Status::MinusInfinity,
                                     Status::Unspecified, Status::Fill,       Status::Number,
                                     Status::PlusInfinity};
  // A function of the sum: in a linear expression, a summand of the sum could vanish.
  Exact result = saw(Status::Number) ? field.unknown(name, {total}) : total;
  for (Status status : isUpper ? upper : lower)
    if (saw(status)) {
      if (status == Status::Fill)
        result = field.unknown(name, {totalOfFills});
      result.level = status == Status::Fill ? unknownLevel : int8_t(0);
      result.isVague = status == Status::Fill && hasVague;
      result.status = status;
      break;
    }
  return result;
}

} // namespace kvopt::check
