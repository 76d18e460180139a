// Arithmetic modulo two primes.
#include "check/arithmetic/field.h"

#include <algorithm>
#include <array>

namespace kvopt::check {
namespace {

/// Primes p and q = (p - 1) / 2, both 3 modulo 4.
struct Primes {
  uint32_t p, q;
};
constexpr std::array<Primes, Field::seeds> primePairs = {
    {{1075729199, 537864599}, {1076995919, 538497959}, {1078566719, 539283359}}};

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
    return Status::Unspecified;
  default:
    return status;
  }
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

Field::Field(unsigned seed)
    : p(primePairs[seed % seeds].p), q(primePairs[seed % seeds].q), w(4),
      key(mixBits(0x6b766f7074u + seed)) {} // 4 = 2^((p - 1) / q) has order q

uint32_t Field::power(uint32_t base, uint64_t exponent, uint32_t modulus) const {
  uint64_t result = 1;
  for (uint64_t square = base % modulus; exponent; exponent >>= 1) {
    if (exponent & 1)
      result = result * square % modulus;
    square = square * square % modulus;
  }
  return static_cast<uint32_t>(result);
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
  auto scale = [&](uint32_t& residue, uint32_t modulus) {
    const uint32_t base = exponent < 0 ? (modulus + 1) / 2 : 2;
    residue = productOf(residue, power(base, static_cast<uint64_t>(std::abs(exponent)), modulus),
                        modulus);
  };
  scale(result.p, p);
  scale(result.q, q);
  return result;
}

Exact Field::arbitrary(uint64_t bits) const {
  bits = mixBits(key ^ bits);
  return {static_cast<uint32_t>(mixBits(bits ^ 1) % p),
          static_cast<uint32_t>(mixBits(bits ^ 2) % q)};
}

Exact Field::add(const Exact& a, const Exact& b) const {
  uint64_t sumP = uint64_t(a.p) + b.p;
  uint64_t sumQ = uint64_t(a.q) + b.q;
  return {static_cast<uint32_t>(sumP >= p ? sumP - p : sumP),
          static_cast<uint32_t>(sumQ >= q ? sumQ - q : sumQ), statusOfSum(a.status, b.status),
          a.hasExponent && b.hasExponent};
}

Exact Field::negate(const Exact& a) const {
  return {a.p ? p - a.p : 0, a.q ? q - a.q : 0, negated(a.status), a.hasExponent};
}

Exact Field::multiply(const Exact& a, const Exact& b, int signOfB) const {
  const Status more = std::max(a.status, b.status);
  if (a.isZero() || b.isZero())
    return {0, 0, timesZero(more), true};
  Status status =
      more >= Status::Unspecified || more == Status::Number ? more : Status::Unspecified;
  if (signOfB != 0 && b.isNumber() && a.status != Status::Number && a.status < Status::Unspecified)
    status = signOfB > 0 ? a.status : negated(a.status);
  return {productOf(a.p, b.p, p), productOf(a.q, b.q, q), status, a.hasExponent && b.hasExponent};
}

Exact Field::invert(const Exact& a) const {
  if (a.status == Status::MinusInfinity || a.status == Status::PlusInfinity)
    return {0, 0, Status::Number, true};
  if (a.isNumber() && a.p == 0)
    return {0, 0, Status::Undecided, false};
  const Status status = a.status == Status::Fill ? Status::Unspecified : a.status;
  return {power(a.p, p - 2, p), power(a.q, q - 2, q), status, a.hasExponent && a.q != 0};
}

Exact Field::divide(const Exact& a, const Exact& b, int signOfB) const {
  if (a.isZero() && b.isZero())
    return {0, 0, Status::NotANumber, false};
  return multiply(a, invert(b), signOfB);
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
    const uint64_t residue = operand.isNumber() ? operand.p : 0;
    bits = mixBits(bits ^ residue ^ (static_cast<uint64_t>(operand.status) << 40));
    if (operand.status >= Status::Unspecified)
      status = std::max(status, operand.status);
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
  if (a.isZero() || b.isZero()) {
    status = std::max(status, timesZero(std::max(a.status, b.status)));
    return;
  }
  if (!a.isNumber() || !b.isNumber()) {
    const Status more = std::max(a.status, b.status);
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
  if (a.isNumber()) {
    // Without the residue modulo q, which equal numbers need not both have.
    total = field.add(total, field.unknown(name, {a}));
  }
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
      result.status = status;
      break;
    }
  return result;
}

} // namespace kvopt::check
