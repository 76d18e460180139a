// Tokens and hidden positions of planned steps.
#include "runtime/equivalence/planned_steps.h"

#include <algorithm>

namespace kvopt::runtime {

int64_t EquivalencePlan::paddedPositions() const {
  return padded > 0 ? padded : pastRows > 0 ? pastRows : prompt;
}

int64_t EquivalencePlan::totalTokens() const {
  int64_t total = prompt + decodeSteps * stepTokens;
  for (int64_t chunk : chunks)
    total += chunk;
  return total;
}

PlannedSteps::PlannedSteps(const EquivalencePlan& steps) : plan(steps), random(steps.seed) {
  if (plan.padding != Padding::None)
    visible.resize(static_cast<size_t>(plan.batch));
}

bool PlannedSteps::isHidden(size_t row, int64_t position) const {
  const int64_t positions = plan.paddedPositions();
  if (row % 3 == 1 || position >= positions)
    return false;
  const int64_t hidden = row % 3 == 0 ? std::min<int64_t>(positions - 1, 2) : positions / 3;
  return plan.padding == Padding::Left ? position < hidden : position >= positions - hidden;
}

DecoderStep PlannedSteps::next(int64_t tokens, int64_t pastLength, bool startsAnew) {
  if (plan.onStep)
    plan.onStep(tokens);
  DecoderStep step;
  step.pastLength = pastLength;
  std::uniform_int_distribution<int64_t> anyToken(0, plan.vocabulary - 1);
  for (int64_t row = 0; row < plan.batch; ++row) {
    step.tokens.emplace_back();
    for (int64_t i = 0; i < tokens; ++i)
      step.tokens.back().push_back(anyToken(random));
  }
  std::uniform_int_distribution<int64_t> anyRow(0, plan.batch - 1);
  if (plan.reordersRows && plan.padding == Padding::None && pastLength > 0)
    for (int64_t row = 0; row < plan.batch; ++row)
      step.batchRows.push_back(anyRow(random));
  // Discards tokens of a model without caches, or of a refused step.
  if (startsAnew)
    visible.assign(visible.size(), {});
  for (size_t row = 0; row < visible.size(); ++row) {
    visible[row].resize(std::min(visible[row].size(), static_cast<size_t>(pastLength)));
    // Synthetic rows come before the first step.
    for (auto position = static_cast<int64_t>(visible[row].size()); position < pastLength;
         ++position)
      visible[row].push_back(isHidden(row, position) ? 0 : 1);
    for (int64_t i = 0; i < tokens; ++i)
      visible[row].push_back(isHidden(row, pastLength + i) ? 0 : 1);
  }
  step.visible = visible;
  step.isMadeUp = true;
  step.recipes = plan.recipes;
  return step;
}

} // namespace kvopt::runtime
