// Which sides of each threshold a scope has.
#include "check/arithmetic/thresholds.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>
#include <set>

namespace kvopt::check {

void Thresholds::enter(const Extents& extents, bool isPadded) {
  constexpr size_t past = 1, tokens = 2;
  current = {extents, isPadded};
  longest = std::max(longest, extents[past] + extents[tokens]);
}

void Thresholds::notePeriod(const ir::Node& node, int64_t period) {
  if (period > longestPeriod) {
    longestPeriod = period;
    periodic = node.describe();
  }
}

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

bool Thresholds::Seen::comesNearer(bool keepsLengths) const {
  constexpr size_t past = 1, tokens = 2;
  for (const auto& [small, before] : nearest)
    for (const auto& [large, after] : nearest) {
      bool isLarger = !keepsLengths || (small.extents[past] == large.extents[past] &&
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

/// Whether the signs that a step shows may depend on sizes apart: sizes or indices that count
/// differently, or a remainder beside a size. Then each sign may be seen without seeing where both
/// are large.
bool Thresholds::Seen::mixesScales() const {
  std::set<double> scales;
  for (const auto& [size, factor] : growth->multiples)
    scales.insert(std::abs(factor));
  for (double factor : {growth->rises, growth->falls})
    if (factor != 0)
      scales.insert(factor);
  if (growth->period == 0)
    return scales.size() > 1;
  // Within one round, multiples move as far as the remainders.
  return !scales.empty() && growth->wiggle > double(std::abs(growth->period)) * *scales.rbegin();
}

bool Thresholds::Seen::isOpen(bool keepsLengths) const {
  if (below && above)
    return (!equal && isExact) || mixesScales();
  if (!below && !above)
    return false;
  const double side = above ? 1 : -1;
  bool maySink = (above ? growth->falls : growth->rises) > 0, hasData = false;
  for (const auto& [size, factor] : growth->multiples) {
    hasData |= size >= firstData;
    maySink |= factor * side < 0;
  }
  if (hasData && maySink)
    return true; // no size determines the number
  if (growth->period == 0)
    return maySink && comesNearer(keepsLengths);
  return comesNearer(keepsLengths) && (growth->period < 0 || comesNearerByPeriods(growth->period));
}

void Thresholds::note(const ir::Node& caller, const ir::Node& node, GrowthId id,
                      const Growth& growth, double difference, bool isExact) {
  if (isMuted)
    return;
  if (std::isnan(difference))
    difference = 0; // both are the same infinity
  auto [at, isNew] = indices.try_emplace({&caller, &node}, comparisons.size());
  if (isNew) {
    comparisons.push_back({});
    comparisons.back().node = &caller == &node
                                  ? node.describe()
                                  : caller.describe() + " calls " + node.describe() + ", which";
  }
  Comparison& known = comparisons[at->second];
  if (!known.last.second || known.last.first != id)
    known.last = {id, &known.seen[id]};
  Seen& seen = *known.last.second;
  seen.growth = &growth;
  seen.isExact &= isExact;
  seen.add(current, difference);
}

std::string Thresholds::gap() const {
  if (!open.empty())
    return open;
  if (2 * longestPeriod > longest)
    return periodic + " repeats itself after " + std::to_string(longestPeriod) +
           " sizes, and two rounds are beyond the scope";
  for (const Comparison& comparison : comparisons)
    for (const auto& [id, seen] : comparison.seen)
      if (seen.isOpen(areLengthsLimited)) {
        const bool isData = llvm::any_of(
            seen.growth->multiples, [](const auto& entry) { return entry.first >= firstData; });
        return comparison.node + " compares " + (isData ? "tokens" : "sizes") +
               ", and may turn out differently beyond the scope";
      }
  return "";
}

void Thresholds::clear() {
  open.clear();
  longestPeriod = 0;
  indices.clear();
  comparisons.clear();
}

} // namespace kvopt::check
