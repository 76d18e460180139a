// Recognition of fractions and roots.
#include "check/arithmetic/constants.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace kvopt::check {
namespace {

constexpr double largestFill = -1e4;
constexpr double largestWeightFill = -1e30;

/// Binary exponent of a known magnitude.
int8_t levelOf(double value) {
  constexpr int most = 126;
  return static_cast<int8_t>(std::clamp(std::ilogb(value), 0, most));
}

/// An element that is not finite.
Exact specialElement(double value) {
  if (std::isnan(value))
    return {0, 0, Status::NotANumber};
  return {0, 0, value < 0 ? Status::MinusInfinity : Status::PlusInfinity};
}

/// The element of a number that is not zero. A multiple of a modulus would be zero in its field.
Exact notVanishing(const Exact& element) {
  return element.p == 0 || element.q == 0 ? Exact{0, 0, Status::Undecided, false} : element;
}

/// The element of a number that is not zero, marked as a fill where it is one.
Exact marked(Exact element, double value, double largest) {
  if (value > largest)
    return notVanishing({element.p, element.q, Status::Number, element.hasExponent,
                         value > 0 ? levelOf(value) : int8_t(0)});
  element.status = value <= largest ? Status::Fill : Status::Number;
  element.level = value > 0 || value <= largest ? levelOf(value) : int8_t(0);
  return element;
}

Exact exactFraction(const Field& field, double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  constexpr int bits = 53;
  return field.dyadic(static_cast<int64_t>(std::ldexp(mantissa, bits)), exponent - bits);
}

std::string numberText(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
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

/// The factor of all sizes, indices and data of a growth that is a multiple of it; 0 if there is
/// none.
double commonFactor(const Growth& growth) {
  const double factor = growth.multiples.empty() ? 0 : std::abs(growth.multiples[0].second);
  auto isOther = [&](double own) { return own != 0 && std::abs(own) != factor; };
  return growth.constant != 0 || isOther(growth.rises) || isOther(growth.falls) ||
                 llvm::any_of(growth.multiples,
                              [&](const auto& entry) { return isOther(entry.second); })
             ? 0
             : factor;
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

void Constants::use(double value, const Exact& element, bool isOfModel) {
  const Uses::Use own{value, isOfModel};
  auto [at, isNew] = uses.used.try_emplace(uint64_t(element.p) << 32 | element.q, own);
  const Uses::Use& other = at->second;
  const auto rounded = static_cast<float>(value);
  const bool areOfModel = isOfModel && other.isOfModel;
  if (isNew || value == other.value || (rounded == static_cast<float>(other.value) && !areOfModel))
    return;
  constexpr double rounding = 0x1p-22; // two units in the last place of a 32-bit float
  const bool isDoubtful = areOfModel && std::abs(value - other.value) > rounding * std::abs(value);
  if (!uses.merged || (isDoubtful && !uses.isDoubtful))
    uses.merged = {other.value, value};
  uses.isDoubtful |= isDoubtful;
}

void Constants::noteMerged(Arithmetic& math) const {
  if (!uses.merged)
    return;
  math.assumptions.insert("constants that differ by at most 1e-6 are one number");
  if (uses.isDoubtful)
    math.thresholds.noteOpen("the constants " + numberText(uses.merged->first) + " and " +
                             numberText(uses.merged->second) +
                             " are taken for one number, and their difference may count");
}

Exact Constants::constant(double value, bool isOfModel) {
  const Exact element = elementOf(value);
  if (element.hasResidue() && value != 0)
    use(value, element, isOfModel);
  return element;
}

Exact Constants::elementOf(double value) {
  if (std::isnan(value) || std::isinf(value))
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
  result = marked(result, value, largestFill);
  seen.emplace(value, result);
  return result;
}

Exact Constants::weight(double value) const {
  if (std::isnan(value) || std::isinf(value))
    return specialElement(value);
  return value == 0 ? Exact() : marked(exactFraction(field, value), value, largestWeightFill);
}

Exact Constants::ofDouble(double value) const {
  if (std::isnan(value) || std::isinf(value))
    return specialElement(value);
  return value == 0 ? Exact() : marked(exactFraction(field, value), value, largestFill);
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
  // A constant of 32 bits is taken for the number that it was rounded from.
  const bool isExactType = tensor->isConstant && tensor->type == ir::ElementType::Double;
  if (tensor->isInteger())
    for (int64_t value : tensor->integers)
      result->reals.push_back(value != 0 ? notVanishing(field.integer(value)) : Exact());
  else
    for (double value : tensor->known)
      result->reals.push_back(tensor->isWeight ? weight(value)
                              : isExactType    ? ofDouble(value)
                                               : constant(value, tensor->isConstant));
  return result;
}

std::optional<Exact> Arithmetic::exactOf(const Tensor& tensor, size_t at) {
  const Growth growth = growths.of(tensor.growth(at), tensor.known[at]);
  if (!growth.isAffine() || growth.period != 0)
    return std::nullopt;
  if (const double factor = commonFactor(growth); factor != 0) {
    const double times = std::round(tensor.known[at] / factor);
    constexpr double most = 0x1p53;
    if (!(std::abs(times) < most))
      return std::nullopt;
    return field.multiply(constants.constant(factor), field.integer(int64_t(times)));
  }
  double rest = tensor.known[at] - growth.constant;
  Exact sum = constants.constant(growth.constant);
  auto add = [&](double factor, int64_t size) {
    rest -= factor * double(size);
    sum = field.add(sum, field.multiply(constants.constant(factor), field.integer(size)));
  };
  for (const auto& [size, factor] : growth.multiples) {
    if (size >= firstData)
      return std::nullopt;
    add(factor, thresholds.sizes()[size]);
  }
  // What is left is a multiple of an index.
  const double each = std::max(growth.rises, growth.falls);
  if (each == 0)
    return sum;
  const double index = std::round(rest / each);
  constexpr double mostError = 0.01;
  if (std::min(growth.rises, growth.falls) != 0 && growth.rises != growth.falls)
    return std::nullopt;
  if (!(std::abs(rest / each - index) < mostError))
    return std::nullopt;
  add(each, int64_t(index));
  return sum;
}

Ref Arithmetic::real(const Ref& tensor, llvm::function_ref<std::string()> user) {
  Ref result = constants.real(tensor);
  const bool isKnown = tensor->kind == Kind::Known;
  if (tensor->isReal() || tensor->growths.empty() || (isOfShapes && isKnown))
    return result;
  std::shared_ptr<Tensor> exact;
  for (size_t i = 0; i < tensor->growths.size(); ++i) {
    const Growth& growth = growths.at(tensor->growths[i]);
    const bool isWhole =
        growth.isAffine() && growth.period != 0 ? growth.isWhole : growth.isIntegral();
    if (growth.isTraced() && (tensor->isInteger() || isWhole) && !growths.hasCount(growth))
      continue;
    const auto number = isBySizes && isKnown ? exactOf(*tensor, i) : std::nullopt;
    if (number && !exact)
      exact = std::make_shared<Tensor>(*result);
    if (number) {
      exact->reals[i] = *number;
    } else {
      readsSizes |= isKnown;
      thresholds.noteOpen(growth.isTraced() ? user() + " reads a number that depends on sizes"
                                            : growth.why);
    }
  }
  return exact ? Ref(exact) : result;
}

} // namespace kvopt::check
