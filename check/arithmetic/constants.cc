// Recognition of fractions and roots.
#include "check/arithmetic/constants.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::check {
namespace {

constexpr double largestFill = -1e4;
constexpr double largestWeightFill = -1e30;

Exact specialElement(double value) {
  if (std::isnan(value))
    return {0, 0, Status::NotANumber};
  if (std::isinf(value))
    return {0, 0, value < 0 ? Status::MinusInfinity : Status::PlusInfinity};
  return {0, 0, Status::Fill};
}

Exact exactFraction(const Field& field, double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  constexpr int bits = 53;
  return field.dyadic(static_cast<int64_t>(std::ldexp(mantissa, bits)), exponent - bits);
}

/// Whether all prime factors are at most 13, so that the number has roots in both fields.
bool hasRoots(uint64_t number) {
  for (uint64_t prime : {2, 3, 5, 7, 11, 13})
    while (number % prime == 0)
      number /= prime;
  return number == 1;
}

struct Ratio {
  uint64_t numerator = 0;
  uint64_t denominator = 1;
};

/// The last convergent of the continued fraction whose denominator is at most `limit`.
Ratio nearRatio(double value, uint64_t limit) {
  Ratio before{1, 0};
  Ratio ratio{static_cast<uint64_t>(value), 1};
  double rest = value - std::floor(value);
  while (rest > 1e-9) {
    rest = 1 / rest;
    const auto term = static_cast<uint64_t>(rest);
    const Ratio next{term * ratio.numerator + before.numerator,
                     term * ratio.denominator + before.denominator};
    if (next.denominator > limit)
      break;
    before = ratio;
    ratio = next;
    rest -= std::floor(rest);
    if (std::abs(static_cast<double>(ratio.numerator) / static_cast<double>(ratio.denominator) -
                 value) <= 1e-12 * value)
      break;
  }
  return ratio;
}

} // namespace

Exact Constants::recognized(double value) {
  const double size = std::abs(value);
  for (unsigned root : {1u, 2u, 4u}) {
    const double power = std::pow(size, root);
    if (!(power > 1e-6 && power < 1e6))
      continue;
    const Ratio ratio = nearRatio(power, power < 1 ? 4096 : 64);
    const double error = std::abs(
        static_cast<double>(ratio.numerator) / static_cast<double>(ratio.denominator) - power);
    if (ratio.numerator == 0 || ratio.numerator > 4096 || error > root * 2e-7 * power)
      continue;
    if (root == 1 ? ratio.denominator > 512 : !hasRoots(ratio.numerator * ratio.denominator))
      continue;
    Exact result = field.fraction(ratio.numerator, ratio.denominator, root);
    return value < 0 ? field.negate(result) : result;
  }
  return exactFraction(field, value);
}

Exact Constants::constant(double value) {
  if (std::isnan(value) || std::isinf(value) || value <= largestFill)
    return specialElement(value);
  if (value == 0)
    return {};
  auto known = seen.find(value);
  if (known != seen.end())
    return known->second;
  const double size = std::abs(value);
  const double tolerance = size < 1e-2 || size > 1 ? 3e-7 * size : 1e-6;
  Exact result;
  auto near = representatives.end();
  if (const double scaled = value * 64; scaled != std::floor(scaled)) {
    auto next = representatives.lower_bound(value);
    if (next != representatives.end() && next->first - value <= tolerance)
      near = next;
    if (next != representatives.begin()) {
      auto before = std::prev(next);
      if (value - before->first <= tolerance &&
          (near == representatives.end() || value - before->first < near->first - value))
        near = before;
    }
  }
  if (near != representatives.end()) {
    result = near->second;
  } else {
    result = recognized(value);
    representatives.emplace(value, result);
  }
  seen.emplace(value, result);
  return result;
}

Exact Constants::weight(double value) const {
  if (std::isnan(value) || std::isinf(value) || value <= largestWeightFill)
    return specialElement(value);
  return exactFraction(field, value);
}

bool Constants::hasSpecial(const Tensor& tensor) {
  return tensor.kind == Kind::Known && llvm::any_of(tensor.known, [](double value) {
           return std::isnan(value) || std::isinf(value) || value <= largestFill;
         });
}

Ref Constants::real(const Ref& tensor) {
  if (tensor->isReal())
    return tensor;
  auto result = std::make_shared<Tensor>();
  result->type = tensor->type;
  result->shape = tensor->shape;
  if (tensor->isInteger())
    for (int64_t value : tensor->integers)
      result->reals.push_back(field.integer(value));
  else
    for (double value : tensor->known)
      result->reals.push_back(tensor->isWeight ? weight(value) : constant(value));
  return result;
}

} // namespace kvopt::check
