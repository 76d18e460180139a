// Truth values as numbers: tensors of zeros and ones.
#pragma once

#include "ir/graph.h"

namespace kvopt::analysis {

/// Whether every element is provably 0 or 1: casts of booleans, small constants of zeros and ones,
/// and data movement of either.
bool isZeroOrOne(const ir::Value& value);

/// A tensor of the same shape with which Where chooses as `value` is 1 or 0: the boolean that is
/// cast to `value`, or else `value` itself. Requires isZeroOrOne(value).
ir::Value& truthOf(ir::Value& value);

/// Scores that pass or are overwritten depending on a tensor of zeros and ones, `kept`:
///   scores * kept + fill * (1 - kept)
struct GatedScores {
  ir::Node* product = nullptr; ///< scores * kept
  unsigned scoresOperand = 0;
  ir::Value* kept = nullptr;
  double fill = 0.0;
};

/// `sum` (an Add or a Sub) as gated scores; nullopt if it is anything else.
std::optional<GatedScores> gatedScores(const ir::Node& sum);

} // namespace kvopt::analysis
