// Arithmetic of growths.
#include "check/arithmetic/growth.h"

#include "check/arithmetic/field.h"
#include "check/arithmetic/integer_range.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kvopt::check {
namespace {

/// Sizes, ids, indices, and batch rows times tokens are at most this; batch rows at most mostRows.
constexpr double mostSize = 1 << 28, mostRows = 1 << 16;
/// Number of growths from which on further ones are not traced.
constexpr size_t mostGrowths = 100000;

bool isWholeNumber(double number) { return number == std::floor(number); }

double leastOf(uint32_t size) {
  return size == uint32_t(GrowingSize::Batch) || size == uint32_t(GrowingSize::Tokens) ? 1 : 0;
}

double mostOf(uint32_t size) { return size == uint32_t(GrowingSize::Batch) ? mostRows : mostSize; }

/// Narrows the bounds to those that the multiples give.
void narrow(Growth& growth) {
  if (!growth.isAffine() || growth.period != 0)
    return;
  double low = growth.constant - growth.falls * mostSize;
  double high = growth.constant + growth.rises * mostSize;
  for (const auto& [size, factor] : growth.multiples) {
    low += factor * (factor > 0 ? leastOf(size) : mostOf(size));
    high += factor * (factor > 0 ? mostOf(size) : leastOf(size));
  }
  growth.low = std::max(growth.low, low);
  growth.high = std::min(growth.high, high);
}

Growth fixed(double value) {
  Growth growth;
  growth.constant = growth.low = growth.high = value;
  return growth;
}

Growth scaled(Growth growth, double factor) {
  for (auto& [size, multiple] : growth.multiples)
    multiple *= factor;
  growth.constant *= factor;
  growth.isWhole &= isWholeNumber(factor);
  growth.rises *= std::abs(factor);
  growth.falls *= std::abs(factor);
  growth.wiggle *= std::abs(factor);
  growth.low *= factor;
  growth.high *= factor;
  if (factor < 0) {
    std::swap(growth.rises, growth.falls);
    std::swap(growth.low, growth.high);
  }
  return growth;
}

/// The greatest common divisor of all multiples of a whole growth; 1 for others.
int64_t divisorOf(const Growth& growth) {
  if (!growth.isIntegral())
    return 1;
  int64_t divisor = std::gcd(int64_t(growth.constant), int64_t(growth.rises));
  divisor = std::gcd(divisor, int64_t(growth.falls));
  for (const auto& [size, factor] : growth.multiples)
    divisor = std::gcd(divisor, int64_t(factor));
  return std::max<int64_t>(divisor, 1);
}

/// Whether sizes and indices occur as they are, or in multiples of the divisor. Each step of the
/// quotient is then reached from all remainders that the scope has.
bool isPlain(const Growth& growth, double divisor) {
  auto isUnit = [&](double factor) {
    return std::abs(factor) == 1 || isWholeNumber(factor / divisor);
  };
  return growth.isAffine() && growth.period == 0 && isWholeNumber(growth.constant) &&
         isUnit(growth.rises) && isUnit(growth.falls) &&
         llvm::all_of(growth.multiples, [&](const auto& entry) { return isUnit(entry.second); });
}

uint64_t partOf(const Growth& growth, double divisor, uint64_t name) {
  auto bits = [](double number) { return static_cast<uint64_t>(int64_t(number * 65536)); };
  uint64_t part = mixBits(bits(divisor) + name);
  for (double number : {growth.rises, growth.falls, growth.constant})
    part = mixBits(part ^ bits(number));
  for (const auto& [size, factor] : growth.multiples)
    part = mixBits(part ^ bits(factor) ^ mixBits(size));
  return part;
}

/// The number up to which a floating-point type has all integers, of the small types.
double mostWhole(ir::ElementType type) {
  constexpr double half = 1 << 11, brain = 1 << 8, eighth = 1 << 3;
  if (!ir::isFloatingPoint(type) || ir::bitWidth(type).value_or(64) >= 32)
    return std::numeric_limits<double>::infinity();
  return type == ir::ElementType::Float16    ? half
         : type == ir::ElementType::BFloat16 ? brain
                                             : eighth;
}

int64_t commonPeriod(int64_t a, int64_t b) {
  if (a == 0 || b == 0)
    return a + b;
  return a == b ? a : -1;
}

/// Names of roundings, in quotients whose parts are told apart.
constexpr uint64_t truncation = 1, remainders = 2, truncatedRemainders = 3;

const char* const notAffine = "computes a function of sizes that is not a sum of multiples of them";

} // namespace

bool Growth::isFixed() const {
  return isAffine() && multiples.empty() && rises == 0 && falls == 0 && period == 0;
}

bool Growth::isIntegral() const {
  constexpr double most = 1e15;
  auto isInteger = [](double number) { return isWholeNumber(number) && std::abs(number) < most; };
  return isAffine() && period == 0 && isInteger(constant) && isInteger(rises) && isInteger(falls) &&
         llvm::all_of(multiples, [&](const auto& entry) { return isInteger(entry.second); });
}

bool Growth::operator<(const Growth& other) const {
  auto compared = [](const Growth& of) {
    return std::tie(of.kind, of.multiples, of.rises, of.falls, of.constant, of.period, of.wiggle,
                    of.parts, of.isWhole, of.low, of.high, of.factors, of.why);
  };
  return compared(*this) < compared(other);
}

Growths::Growths() { keep(Growth()); }

Growth Growths::of(GrowthId id, double value) const {
  return id == fixedGrowth ? fixed(value) : *all[id];
}

GrowthId Growths::keep(Growth growth) {
  if (growth.isFixed())
    growth = Growth(); // the value says the rest
  for (double* number : {&growth.rises, &growth.falls, &growth.constant, &growth.low, &growth.high})
    if (std::isnan(*number)) {
      growth = Growth();
      growth.kind = Growth::Kind::Untraced;
      growth.why = notAffine;
      break;
    }
  const auto [at, isNew] = known.try_emplace(std::move(growth), GrowthId(all.size()));
  if (isNew)
    all.push_back(&at->first);
  return at->second;
}

GrowthId Growths::untraced(const std::string& why) {
  Growth growth;
  growth.kind = Growth::Kind::Untraced;
  growth.why = why;
  return keep(std::move(growth));
}

GrowthId Growths::size(GrowingSize which, double factor) {
  Growth growth;
  growth.multiples = {{uint32_t(which), factor}};
  growth.low = -std::numeric_limits<double>::infinity();
  growth.high = std::numeric_limits<double>::infinity();
  narrow(growth);
  return keep(std::move(growth));
}

GrowthId Growths::data(const std::string& name) {
  const auto number = names.try_emplace(name, firstData + uint32_t(names.size())).first->second;
  return size(static_cast<GrowingSize>(number));
}

GrowthId Growths::count(const std::string& name) {
  const GrowthId id = data(name);
  counts.insert(all[id]->multiples.front().first);
  return id;
}

bool Growths::hasCount(const Growth& growth) const {
  return llvm::any_of(growth.multiples,
                      [&](const auto& entry) { return counts.count(entry.first) != 0; });
}

GrowthId Growths::indexed(GrowthId start, double value, double factor) {
  Growth index;
  (factor > 0 ? index.rises : index.falls) = std::abs(factor);
  index.low = std::min(factor, 0.0) * mostSize;
  index.high = std::max(factor, 0.0) * mostSize;
  return factor == 0 ? start : sum({start, value}, {keep(std::move(index)), 0});
}

GrowthId Growths::memo(Operation operation, Number a, Number b) {
  if (a.id == fixedGrowth && b.id == fixedGrowth)
    return fixedGrowth;
  const double ofA = a.id == fixedGrowth ? a.value : 0, ofB = b.id == fixedGrowth ? b.value : 0;
  for (const Number& number : {a, b})
    if (!all[number.id]->isTraced())
      return number.id;
  if (all.size() > mostGrowths)
    return untraced("computes more functions of sizes than are traced");
  if (!std::isfinite(ofA) || !std::isfinite(ofB))
    return untraced("combines sizes and a number that is not finite");
  const auto key = std::make_tuple(operation, a.id, b.id, ofA, ofB);
  if (auto found = results.find(key); found != results.end())
    return found->second;
  const GrowthId result = compute(operation, {a.id, ofA}, {b.id, ofB});
  results.emplace(key, result);
  return result;
}

GrowthId Growths::compute(Operation operation, const Number& a, const Number& b) {
  const Growth left = of(a.id, a.value), right = of(b.id, b.value);
  switch (operation) {
  case Operation::Product:
    return productOf(left, right);
  case Operation::Quotient:
  case Operation::Truncated:
    return b.id == fixedGrowth
               ? quotientOf(left, b.value, operation == Operation::Truncated ? truncation : 0)
               : untraced(notAffine);
  case Operation::Remainder:
  case Operation::Fmod:
    return b.id == fixedGrowth ? remainderOf(left, b.value, operation == Operation::Fmod)
                               : untraced(notAffine);
  case Operation::Sum:
  case Operation::Difference:
    break;
  }
  const Growth other = operation == Operation::Sum ? right : scaled(right, -1);
  Growth result = left;
  result.low += other.low;
  result.high += other.high;
  if (!left.isAffine() || !other.isAffine()) {
    result.kind = Growth::Kind::Polynomial;
    result.factors = {};
    result.multiples = {};
    result.rises = result.falls = result.constant = result.wiggle = 0;
    result.period = commonPeriod(left.period, right.period);
    return result.period ? untraced(notAffine) : keep(std::move(result));
  }
  std::map<uint32_t, double> multiples(result.multiples.begin(), result.multiples.end());
  for (const auto& [size, factor] : other.multiples)
    multiples[size] += factor;
  result.multiples.clear();
  for (const auto& entry : multiples)
    if (entry.second != 0)
      result.multiples.push_back(entry);
  result.rises += other.rises;
  result.falls += other.falls;
  result.constant += other.constant;
  result.wiggle += other.wiggle;
  result.period = commonPeriod(left.period, right.period);
  auto isInteger = [](const Growth& growth) {
    return growth.period == 0 ? growth.isIntegral() : growth.isWhole;
  };
  result.isWhole = result.period == 0 || (isInteger(left) && isInteger(right));
  result.parts = left.parts + (operation == Operation::Sum ? right.parts : 0 - right.parts);
  if (result.period != 0 && result.parts == 0) { // the same quotients, taken from each other
    result.period = 0;
    result.wiggle = 0;
    result.isWhole = true;
  }
  narrow(result);
  return keep(std::move(result));
}

GrowthId Growths::sum(Number a, Number b, double sign) {
  return memo(sign > 0 ? Operation::Sum : Operation::Difference, a, b);
}

/// A growth without a common divisor, so that equal factors are found.
GrowthId Growths::primitive(Growth growth) {
  const auto divisor = double(divisorOf(growth));
  return keep(divisor > 1 ? scaled(std::move(growth), 1 / divisor) : std::move(growth));
}

namespace {

/// The factor of a growth that is a multiple of the number of batch rows, or of an index of one; 0
/// for others.
double rowsOf(const Growth& growth) {
  if (growth.constant != 0 || growth.falls != 0 || growth.low < 0 || growth.high > 2 * mostRows)
    return 0;
  if (growth.multiples.empty())
    return growth.rises;
  const auto& [size, factor] = growth.multiples[0];
  return growth.multiples.size() == 1 && growth.rises == 0 && size == uint32_t(GrowingSize::Batch)
             ? factor
             : 0;
}

} // namespace

GrowthId Growths::productOf(const Growth& a, const Growth& b) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    if (one->isFixed()) {
      Growth result = scaled(*other, one->constant);
      if (one->constant == 0)
        return fixedGrowth;
      if (result.period != 0)
        result.parts = mixBits(result.parts + uint64_t(int64_t(one->constant * 65536)));
      return keep(std::move(result));
    }
  if (!a.isAffine() || !b.isAffine() || a.period != 0 || b.period != 0)
    return untraced(notAffine);
  Growth result;
  result.kind = Growth::Kind::Polynomial;
  result.factors = {primitive(a), primitive(b)};
  llvm::sort(result.factors);
  const auto corners = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
  std::tie(result.low, result.high) = std::minmax(corners);
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    if (const double rows = rowsOf(*one); rows > 0) {
      double most = std::abs(other->constant) * mostRows;
      for (const auto& [size, factor] : other->multiples)
        most += std::abs(factor) * mostSize;
      most = rows * (most + (other->rises + other->falls) * mostSize);
      result.low = std::max(result.low, -most);
      result.high = std::min(result.high, most);
    }
  return keep(std::move(result));
}

GrowthId Growths::product(Number a, Number b) { return memo(Operation::Product, a, b); }

GrowthId Growths::quotientOf(const Growth& a, double divisor, uint64_t rounding) {
  if (divisor == 0)
    return untraced(notAffine);
  Growth result = scaled(a, 1 / divisor);
  result.isWhole = true;
  if (rounding == 0)
    return a.isAffine() && a.period == 0 ? keep(std::move(result)) : untraced(notAffine);
  if (a.isAffine() && a.period == 0 && int64_t(divisor) != 0 &&
      divisorOf(a) % int64_t(std::abs(divisor)) == 0)
    return keep(std::move(result));
  if (!isPlain(a, divisor))
    return untraced(notAffine);
  result.period = int64_t(std::abs(divisor));
  result.wiggle = 1 - 1 / std::abs(divisor);
  result.parts = partOf(a, divisor, rounding);
  result.low = std::floor(result.low);
  result.high = std::ceil(result.high);
  return keep(std::move(result));
}

GrowthId Growths::quotient(Number a, Number b, bool isTruncated) {
  return memo(isTruncated ? Operation::Truncated : Operation::Quotient, a, b);
}

GrowthId Growths::remainderOf(const Growth& a, double divisor, bool isTruncated) {
  if (divisor == 0 || !isWholeNumber(divisor) || !isPlain(a, divisor))
    return untraced(notAffine);
  const double most = std::abs(divisor) - 1;
  Growth result;
  result.constant = a.constant;
  result.wiggle = most;
  result.period = int64_t(std::abs(divisor));
  result.parts = partOf(a, divisor, isTruncated ? truncatedRemainders : remainders);
  const bool goesBelow = isTruncated ? a.low < 0 : divisor < 0;
  const bool goesAbove = isTruncated ? a.high > 0 : divisor > 0;
  result.low = goesBelow ? -most : 0;
  result.high = goesAbove ? most : 0;
  return keep(std::move(result));
}

GrowthId Growths::remainder(Number a, Number b, bool isTruncated) {
  return memo(isTruncated ? Operation::Fmod : Operation::Remainder, a, b);
}

GrowthId Growths::bound(Number chosen, Number other, bool isUpper) {
  if (chosen.id == fixedGrowth || !all[chosen.id]->isTraced())
    return chosen.id;
  if (!all[other.id]->isTraced())
    return other.id;
  Growth result = *all[chosen.id];
  const Growth limit = of(other.id, other.value);
  if (isUpper)
    result.low = std::max(result.low, limit.low);
  else
    result.high = std::min(result.high, limit.high);
  return keep(std::move(result));
}

GrowthId Growths::rounded(Number a, uint64_t name, bool halvesBecomeEven) {
  const Growth& growth = *all[a.id];
  if (growth.isFixed() || growth.isIntegral() || !growth.isTraced() ||
      (growth.period != 0 && growth.isWhole))
    return a.id;
  // A quotient by a power of two has no rounding of its own.
  for (double divisor = 2; growth.isAffine() && growth.period == 0 && divisor < mostSize;
       divisor *= 2) {
    const Growth whole = scaled(growth, divisor);
    if (!whole.isIntegral())
      continue;
    return halvesBecomeEven ? untraced(notAffine) : quotientOf(whole, divisor, name);
  }
  return untraced(notAffine);
}

GrowthId Growths::of(GrowthId id, llvm::ArrayRef<GrowthId> operands,
                     llvm::function_ref<std::string()> node) {
  const bool isOwn = !all[id]->isTraced() &&
                     llvm::all_of(operands, [&](GrowthId each) { return all[each]->isTraced(); });
  return isOwn ? untraced(node() + " " + all[id]->why) : id;
}

/// Adds the factors of an extent. False if it is not a known product.
bool Growths::takeFactors(const Number& number, std::vector<GrowthId>& factors) const {
  const Growth& growth = *all[number.id];
  if (!growth.isTraced() || (growth.kind == Growth::Kind::Polynomial && growth.factors.empty()))
    return false;
  if (growth.kind == Growth::Kind::Polynomial)
    factors.insert(factors.end(), growth.factors.begin(), growth.factors.end());
  else if (number.id != fixedGrowth)
    factors.push_back(number.id);
  return true;
}

GrowthId Growths::rest(llvm::ArrayRef<Number> data, llvm::ArrayRef<Number> wanted) {
  std::vector<GrowthId> factors, taken;
  for (const auto& [numbers, found] : {std::pair(data, &factors), std::pair(wanted, &taken)})
    for (const Number& number : numbers)
      if (!takeFactors(number, *found))
        return untraced("has an extent that is not a product of sizes");
  for (GrowthId& id : factors)
    id = primitive(at(id));
  for (GrowthId id : taken) {
    auto found = llvm::find(factors, primitive(at(id)));
    if (found == factors.end())
      return untraced("has an extent that is a quotient of sizes");
    factors.erase(found);
  }
  Number result{fixedGrowth, 1};
  for (GrowthId id : factors)
    result.id = product(result, {id, 0});
  return result.id;
}

GrowthId Growths::stored(GrowthId id, ir::ElementType type) {
  const Growth& growth = *all[id];
  if (id == fixedGrowth || !growth.isTraced())
    return id;
  const double most = std::max(std::abs(growth.low), std::abs(growth.high));
  const std::string name = ir::onnxName(type).str();
  if (ir::isInteger(type) && !(holds(type, growth.low) && holds(type, growth.high)))
    return untraced("makes integers that " + name + " need not hold beyond the scope");
  if (most > mostWhole(type))
    return untraced("makes numbers of sizes that " + name + " rounds beyond the scope");
  return id;
}

} // namespace kvopt::check
