// Which sides of each threshold a scope has.
#include "check/arithmetic/thresholds.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>
#include <set>

namespace kvopt::check {
namespace {
/// Largest number of elements whose thresholds are looked at one by one, as in a shape. Longer
/// vectors are indices of one axis.
constexpr size_t mostPlaces = 6;
} // namespace

void Thresholds::Seen::add(const Sizes& step, double difference) {
  below |= difference < 0;
  above |= difference > 0;
  equal |= difference == 0;
  if (step.isPadded)
    return;
  if (nearest.empty() || nearest.back().first.extents != step.extents)
    nearest.push_back({step, std::numeric_limits<double>::infinity()});
  nearest.back().second = std::min(nearest.back().second, std::abs(difference));
}

bool Thresholds::Seen::comesNearer(bool areLengthsLimited) const {
  constexpr size_t past = 1, tokens = 2;
  for (const auto& [small, before] : nearest)
    for (const auto& [large, after] : nearest) {
      bool isLarger = !areLengthsLimited || (small.extents[past] == large.extents[past] &&
                                             small.extents[tokens] == large.extents[tokens]);
      for (size_t i = 0; i < small.extents.size(); ++i)
        isLarger &= large.extents[i] >= small.extents[i];
      if (isLarger && after < before)
        return true;
    }
  return false;
}

bool Thresholds::Seen::comesNearerByPeriods(int64_t period) const {
  constexpr size_t past = 1, tokens = 2;
  // Remainders of earlier and of new tokens that occur a period apart, after the first period.
  std::set<int64_t> ofPast, ofTokens;
  for (const auto& [small, before] : nearest)
    for (const auto& [large, after] : nearest) {
      bool isLarger = (large.extents[past] - small.extents[past]) % period == 0 &&
                      (large.extents[tokens] - small.extents[tokens]) % period == 0;
      for (size_t i = 0; i < small.extents.size(); ++i)
        isLarger &= large.extents[i] >= small.extents[i];
      if (isLarger && after < before)
        return true;
      if (isLarger && large.extents[past] > small.extents[past] && small.extents[past] >= period)
        ofPast.insert(small.extents[past] % period);
      if (isLarger && large.extents[tokens] > small.extents[tokens])
        ofTokens.insert(small.extents[tokens] % period);
    }
  return static_cast<int64_t>(std::min(ofPast.size(), ofTokens.size())) < period;
}

void Thresholds::note(const ir::Node& caller, const ir::Node& node, const Element& element,
                      double difference, bool isExact, bool isData) {
  if (std::isnan(difference))
    difference = 0; // both are the same infinity
  auto [at, isNew] = indices.try_emplace({&caller, &node}, comparisons.size());
  if (isNew) {
    comparisons.push_back({});
    comparisons.back().node = &caller == &node
                                  ? node.describe()
                                  : caller.describe() + " calls " + node.describe() + ", which";
    comparisons.back().count = element.count;
    comparisons.back().period = element.period;
  }
  Comparison& known = comparisons[at->second];
  known.isExact &= isExact;
  known.isData |= isData;
  if (known.period != element.period)
    known.period = -1;
  known.isFixed &= known.count == element.count && element.count <= mostPlaces;
  known.ofConstants[element.constant].add(current, difference);
  if (known.isFixed)
    known.ofPlaces[{element.constant, element.place}].add(current, difference);
}

std::string Thresholds::gap() const {
  if (!open.empty())
    return open;
  for (const Comparison& comparison : comparisons) {
    auto isOpen = [&](const auto& entry) {
      const Seen& seen = entry.second;
      if (seen.isCrossed(comparison.isExact))
        return false;
      if (comparison.isData || (seen.below && seen.above))
        return true;
      return seen.comesNearer(areLengthsLimited) &&
             (comparison.period <= 0 || seen.comesNearerByPeriods(comparison.period));
    };
    if (comparison.isFixed ? llvm::any_of(comparison.ofPlaces, isOpen)
                           : llvm::any_of(comparison.ofConstants, isOpen))
      return comparison.node + " compares " + (comparison.isData ? "tokens" : "sizes") +
             ", and may turn out differently beyond the scope";
  }
  return "";
}

void Thresholds::clear() {
  open.clear();
  indices.clear();
  comparisons.clear();
}

} // namespace kvopt::check
