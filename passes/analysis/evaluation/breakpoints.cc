// Coverage of breakpoints by points.
#include "passes/analysis/evaluation/breakpoints.h"

#include "passes/pattern/explain.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Maximum number of operators choosing by size that are compared with each other.
constexpr size_t mostChoices = 64;

/// The sides of one breakpoint at each point.
struct SeenSides {
  const Breakpoint* breakpoint = nullptr;
  std::vector<unsigned> at;
  unsigned all = 0;

  bool isChoiceBySize() const {
    return (all & (all - 1)) != 0 &&
           llvm::all_of(at, [](unsigned sides) { return (sides & (sides - 1)) == 0; });
  }
};

bool excludeEachOther(const BreakpointSide& one, const BreakpointSide& other) {
  return llvm::any_of(one.atLeastZero, [&](const Dim& first) {
    return llvm::any_of(other.atLeastZero,
                        [&](const Dim& second) { return (-(first + second)).isKnownPositive(); });
  });
}

std::optional<ArgumentBreak> uncoveredPair(const SeenSides& one, const SeenSides& other) {
  for (size_t i = 0; i < one.breakpoint->sides.size(); ++i)
    for (size_t j = 0; j < other.breakpoint->sides.size(); ++j) {
      const unsigned first = 1U << i, second = 1U << j;
      const BreakpointSide& side = one.breakpoint->sides[i];
      const BreakpointSide& otherSide = other.breakpoint->sides[j];
      if ((one.all & first) == 0 || (other.all & second) == 0 || excludeEachOther(side, otherSide))
        continue;
      bool isSeen = false;
      for (size_t point = 0; point < one.at.size() && !isSeen; ++point)
        isSeen = (one.at[point] & first) != 0 && (other.at[point] & second) != 0;
      if (!isSeen)
        return ArgumentBreak{one.breakpoint->node,
                             formatted("at no tried size it is {} while '{}' is {}", side.name,
                                       pattern::labelOf(*other.breakpoint->node), otherSide.name)};
    }
  return std::nullopt;
}

} // namespace

std::optional<ArgumentBreak> uncoveredSide(llvm::ArrayRef<Breakpoint> breakpoints,
                                           llvm::ArrayRef<Evaluation*> points) {
  std::vector<SeenSides> choices, others;
  for (const Breakpoint& breakpoint : breakpoints) {
    SeenSides seen;
    seen.breakpoint = &breakpoint;
    for (Evaluation* point : points) {
      seen.at.push_back(breakpoint.seen(*point));
      seen.all |= seen.at.back();
    }
    for (size_t i = 0; i < breakpoint.sides.size(); ++i)
      if (breakpoint.sides[i].isPossible && (seen.all >> i & 1U) == 0)
        return ArgumentBreak{breakpoint.node,
                             formatted("at no tried size it is {}", breakpoint.sides[i].name)};
    (seen.isChoiceBySize() ? choices : others).push_back(std::move(seen));
  }
  if (choices.size() > mostChoices)
    return ArgumentBreak{choices.front().breakpoint->node, "too many operators choose by size"};
  for (size_t i = 0; i < choices.size(); ++i)
    for (const SeenSides& other : llvm::ArrayRef(choices).drop_front(i + 1))
      if (auto uncovered = uncoveredPair(choices[i], other))
        return uncovered;
  for (const SeenSides& choice : choices)
    for (const SeenSides& other : others)
      if (auto uncovered = uncoveredPair(choice, other))
        return uncovered;
  return std::nullopt;
}

} // namespace kvopt::analysis
