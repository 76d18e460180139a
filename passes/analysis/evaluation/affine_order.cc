// Comparison of numbers at all sizes.
#include "passes/analysis/evaluation/affine_order.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// A polynomial of degree 1 at most.
struct AffineParts {
  int64_t constant = 0;
  std::map<std::string, int64_t> factors; ///< by symbol

  Dim sum() const {
    Dim result = Dim::fixed(constant);
    for (const auto& [symbol, factor] : factors)
      result = result + Dim::fixed(factor) * Dim::symbol(symbol);
    return result;
  }
};

std::optional<AffineParts> partsOf(const Dim& dim) {
  if (dim.isUnknown())
    return std::nullopt;
  auto at = [&](llvm::StringRef one) {
    return dim.evaluate([&](llvm::StringRef symbol) { return symbol == one ? 1 : 0; });
  };
  const std::optional<int64_t> constant = at("");
  if (!constant)
    return std::nullopt;
  AffineParts parts;
  parts.constant = *constant;
  for (const std::string& symbol : dim.symbols()) {
    const std::optional<int64_t> with = at(symbol);
    if (!with)
      return std::nullopt;
    parts.factors[symbol] = *with - *constant;
  }
  return parts.sum().isKnownEqual(dim) ? std::optional(parts) : std::nullopt;
}

/// Symbols are not negative, so a relation between all factors holds for the sums.
Dim combined(const Dim& one, const Dim& other,
             llvm::function_ref<int64_t(int64_t, int64_t)> choose) {
  auto first = partsOf(one), second = partsOf(other);
  if (!first || !second)
    return Dim::unknown();
  AffineParts parts;
  parts.constant = choose(first->constant, second->constant);
  for (const AffineParts* each : {&*first, &*second})
    for (const auto& entry : each->factors)
      parts.factors[entry.first] =
          choose(first->factors[entry.first], second->factors[entry.first]);
  return parts.sum();
}

/// Sum of lengths that bounds the elements.
Dim boundOf(const Dim& known, double number) {
  if (!known.isUnknown() || !(number > -NumberBounds::largest && number < NumberBounds::largest) ||
      number != std::floor(number))
    return known;
  return Dim::fixed(static_cast<int64_t>(number));
}

} // namespace

bool isAffine(const Dim& dim) { return partsOf(dim).has_value(); }

Dim greatestOf(const Dim& one, const Dim& other) {
  return combined(one, other, [](int64_t a, int64_t b) { return std::max(a, b); });
}

Dim leastOf(const Dim& one, const Dim& other) {
  return combined(one, other, [](int64_t a, int64_t b) { return std::min(a, b); });
}

Ordering orderingOf(const Value& first, const NumberBounds& ofFirst, const Value& second,
                    const NumberBounds& ofSecond) {
  Ordering order;
  order.less = ofFirst.low < ofSecond.high;
  order.greater = ofFirst.high > ofSecond.low;
  order.equal = ofFirst.low <= ofSecond.high && ofFirst.high >= ofSecond.low;
  const Dim least = boundOf(ofFirst.least, ofFirst.low), most = boundOf(ofFirst.most, ofFirst.high);
  const Dim otherLeast = boundOf(ofSecond.least, ofSecond.low);
  const Dim otherMost = boundOf(ofSecond.most, ofSecond.high);
  order.less &= !otherMost.isKnownLessEqual(least);
  order.greater &= !most.isKnownLessEqual(otherLeast);
  order.equal &= !otherMost.isKnownLess(least) && !most.isKnownLess(otherLeast);
  const auto left = first.knownIntegers(), right = second.knownIntegers();
  if (!left || !right || left->empty() || right->empty() ||
      (left->size() != right->size() && left->size() != 1 && right->size() != 1))
    return order;
  bool less = false, equal = false, greater = false;
  for (size_t i = 0; i < std::max(left->size(), right->size()); ++i) {
    const Dim& one = (*left)[left->size() == 1 ? 0 : i];
    const Dim& other = (*right)[right->size() == 1 ? 0 : i];
    less |= !other.isKnownLessEqual(one);
    greater |= !one.isKnownLessEqual(other);
    equal |= !one.isKnownDifferent(other) && !one.isKnownLess(other) && !other.isKnownLess(one);
  }
  order.less &= less;
  order.equal &= equal;
  order.greater &= greater;
  if (left->size() == 1 && right->size() == 1)
    if (Dim difference = left->front() - right->front(); isAffine(difference))
      order.difference = std::move(difference);
  return order;
}

Breakpoint Ordering::breakpoint(const Node& node, const Value& first, const Value& second,
                                const char* whenLess, const char* whenGreater) const {
  Breakpoint result;
  result.node = &node;
  result.sides = {{whenLess, less, {}}, {whenGreater, greater, {}}};
  if (difference) {
    result.sides[0].atLeastZero = {-*difference - Dim::fixed(1)};
    result.sides[1].atLeastZero = {*difference - Dim::fixed(1)};
  }
  result.seen = [&first, &second](Evaluation& at) {
    const NumberTensor* left = at.numbers(first);
    const NumberTensor* right = at.numbers(second);
    const auto extents = left && right ? broadcastOf(left->extents, right->extents) : std::nullopt;
    if (!extents)
      return 0U;
    const BroadcastElements ofLeft(*extents, left->extents), ofRight(*extents, right->extents);
    unsigned sides = 0;
    for (int64_t i = 0; i < countOf(*extents).value_or(0); ++i) {
      const double one = left->numbers[static_cast<size_t>(ofLeft(i))];
      const double other = right->numbers[static_cast<size_t>(ofRight(i))];
      sides |= one < other ? 1U : one > other ? 2U : 0U;
    }
    return sides;
  };
  return result;
}

} // namespace kvopt::analysis
